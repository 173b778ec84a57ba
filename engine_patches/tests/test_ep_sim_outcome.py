import pytest

from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival


def test_figures_count_from_the_clients_request():
    outcome = Outcome(Arrival(10.0, 100, 5), started_at=11.0, first_token_at=12.0, finished_at=14.0)
    assert (outcome.wait, outcome.ttft, outcome.e2e) == (1.0, 2.0, 4.0)
    assert (outcome.tpot, outcome.normalized_latency) == (0.5, 0.8)
    assert not outcome.lost


def test_one_token_has_no_gap():
    assert Outcome(Arrival(0.0, 100, 1), first_token_at=1.0, finished_at=1.0).tpot == 0


def test_what_did_not_happen_is_none():
    outcome = Outcome(Arrival(10.0, 100, 5), started_at=11.0, first_token_at=12.0)
    assert outcome.lost
    assert (outcome.wait, outcome.ttft) == (1.0, 2.0)
    assert outcome.e2e is outcome.tpot is outcome.normalized_latency is None
    assert Outcome(Arrival(10.0, 100, 5)).wait is Outcome(Arrival(10.0, 100, 5)).ttft is None


@pytest.mark.parametrize(
    ("prompt", "output", "reason"),
    [
        (0, 5, "at least 1"),
        (5, 0, "at least 1"),
        (900, 125, "max_model_len, 1024"),
        (800, 200, "KV cache holds, 992"),
        (792, 200, None),
    ],
)
def test_requests_that_can_never_be_served_are_refused(prompt, output, reason):
    refusal = EngineSettings(num_blocks=63, block_size=16, max_model_len=1024).refusal(prompt, output)
    assert refusal is None if reason is None else reason in refusal
