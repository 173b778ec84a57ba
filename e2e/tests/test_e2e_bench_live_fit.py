"""What the live fit's figures mean."""

import pytest

from e2e.bench import live_fit
from headrace_engine.control.records import StepSample
from headrace_engine.cost.forms import Linear
from headrace_engine.cost.model import Profile

COST = Linear(Profile("", "", 1, "", ""), fixed=0.01, per_prefill=1e-4, per_decode=1e-3)


def samples(factor):
    for n in range(1, 41):
        batch = StepSample(0 if n % 4 else 10 * n, 0, n, 100 * n, 0.0)
        yield batch._replace(seconds=factor * seconds(batch))


def seconds(sample):
    return COST.step_seconds(live_fit.batch(sample))


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.25])
def test_errors_are_relative_to_what_was_measured(factor):
    figures = live_fit.figures_of(COST, list(samples(1.0)), list(samples(factor)))
    assert figures["step_time_mape_percent"] == pytest.approx(100 * abs(1 / factor - 1), abs=0.01)
    assert figures["total_time_error_percent"] == pytest.approx(100 * (1 / factor - 1), abs=0.01)
    assert figures["steps_predicted_with_prefill"] == 10
    assert (figures["r2"] == 1.0) == (factor == 1.0)
    assert figures["mean_predictor_mape_percent"] > figures["step_time_mape_percent"]
