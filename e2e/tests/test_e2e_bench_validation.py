"""The simulator against measured vLLM runs: the bounds that its figures are believed within."""

import numpy as np
import pytest

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.filterwarnings("default"),  # torch's own, as it is imported
]

MEAN_E2E = MEAN_TPOT = 5.0  # percent
MEAN_TTFT = 10.0
SINGLE_E2E = 10.0


@pytest.fixture(scope="module", params=["PRO6000_8B", "QWEN3_32B"])
def compared(request):
    from e2e.bench.validation import measured

    machine = getattr(measured, request.param)
    run = measured.simulated(machine)
    assert run.preemptions == 0
    return measured.times(run), measured.recorded(machine)


@pytest.mark.parametrize(("what", "bound"), [("e2e", MEAN_E2E), ("tpot", MEAN_TPOT), ("ttft", MEAN_TTFT)])
def test_the_mean_is_within_its_bound(compared, what, bound):
    from e2e.bench.validation.study import error_percent

    ours, theirs = compared
    assert abs(error_percent(getattr(ours, what), getattr(theirs, what))) <= bound


def test_single_requests_and_quantiles_are_close_too(compared):
    from e2e.bench.validation.study import mape_percent

    ours, theirs = compared
    assert mape_percent(ours.e2e, theirs.e2e) <= SINGLE_E2E
    for quantile in (50, 90, 95, 99):
        assert np.percentile(ours.e2e, quantile) == pytest.approx(
            np.percentile(theirs.e2e, quantile), rel=0.05
        )


def test_the_mean_errors_are_those_written_down(compared, request):
    """The figures that other pages print are of this very simulator; a changed one must be measured again."""
    import json

    from e2e.bench.report.results import RESULTS
    from e2e.bench.validation.study import figures_of

    run = {"PRO6000_8B": "pro6000_8b", "QWEN3_32B": "qwen3_32b"}[request.node.callspec.params["compared"]]
    written = json.loads((RESULTS / "validation.json").read_text())["figures"]
    for name, value in figures_of(*compared).items():
        assert written[f"{run}_{name}"] == pytest.approx(value, abs=0.3)
