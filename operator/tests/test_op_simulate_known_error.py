"""What a user is told of the simulator's error for the service's own model and GPU."""

from headrace_engine.cost.known_error import Comparison
from headrace_operator.simulate.known_error import (
    describe_known_error,
    find_known_error,
    known_error_json,
)
from headrace_operator.simulate.models import find_cost_model

ONE = {"a": {"ttft": -20.0, "tpot": -4.0, "e2e": -5.0}, "b": {"ttft": 10.0, "tpot": 2.0, "e2e": 3.0}}
OTHER = {"c": {"ttft": -50.0, "tpot": -10.0, "e2e": 25.0}}
EVERYTHING = (
    Comparison("llama-3-8b", "H100", 1, "vLLM 0.15.1", "runs of A", ONE),
    Comparison("llama-3-70b", "H100", 4, "vLLM 0.15.1", "runs of B", OTHER),
)


def known(gpu):
    return find_known_error(find_cost_model("llama-3-8b", gpu, 1).profile, EVERYTHING)


def test_a_gpu_that_was_compared_is_off_as_its_runs_were():
    found = known("H100")
    assert found.off_by == {"ttft": 1 / 0.8, "tpot": 1 / 0.96, "e2e": 1 / 0.95}
    assert describe_known_error(found) == (
        "TTFT 15.0 % (worst -20.0 %), TPOT 3.0 % (worst -4.0 %), E2E 4.0 % (worst -5.0 %) "
        "in 2 runs of vLLM 0.15.1 (runs of A)"
    )
    assert known_error_json(found)["compared"] == [
        {"engine": "vLLM 0.15.1", "source": "runs of A", "runs": ONE}
    ]


def test_a_gpu_that_never_was_says_so_and_is_off_by_the_widest():
    found = known("A100")
    assert found.off_by == {"ttft": 2, "tpot": 1 / 0.9, "e2e": 1.25}
    assert describe_known_error(found).startswith(
        "never compared with runs of this model and GPU; the widest error of others is taken: TTFT x 2.00"
    )
    assert known_error_json(found)["compared"] == []
