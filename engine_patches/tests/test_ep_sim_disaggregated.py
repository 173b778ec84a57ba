"""DistServe as two simulated engines: what is charged where."""

import pytest
from ep_adapter_trial import MARKS

from headrace_engine.cost.model import Batch
from headrace_engine.policies.engine_view import Targets
from headrace_engine.sim.workloads.arrival import Arrival

pytestmark = MARKS


@pytest.fixture(scope="module")
def serve():
    from ep_sim import Line, settings

    from headrace_engine.sim.disaggregated import Link, simulate_disaggregated

    def run(arrivals, per_second=1e9, per_token=0.001, **changed):
        cost = Line(0.01, per_token)
        return simulate_disaggregated(arrivals, settings(**changed), cost, Link(1000, per_second))

    return run


def test_one_request_is_prefilled_sent_and_decoded(serve):
    (outcome,) = serve([Arrival(1.0, 100, 4)], per_second=1e6).outcomes
    assert outcome.first_token_at == pytest.approx(1.0 + 0.11)
    assert outcome.finished_at == pytest.approx(1.0 + 0.11 + 0.1 + 3 * 0.011)
    assert outcome.longest_gap == pytest.approx(0.1 + 0.011)
    assert (outcome.engine, outcome.wait) == (1, 0.0)


@pytest.mark.parametrize(("allowed", "late"), [(0.1, 1), (0.01, 3), (0.2, 0)])
def test_tokens_after_the_hand_over_are_late_too(serve, allowed, late):
    (outcome,) = serve([Arrival(1.0, 100, 4, targets=Targets(tpot=allowed))], per_second=1e6).outcomes
    assert outcome.late_tokens == late


def test_a_single_token_never_leaves_the_first_engine(serve):
    (outcome,) = serve([Arrival(0.0, 100, 1)]).outcomes
    assert outcome.finished_at == outcome.first_token_at == pytest.approx(0.11)
    assert outcome.engine == 0


def test_the_link_carries_one_after_another(serve):
    arrivals = [Arrival(0.0, 100, 2), Arrival(0.0, 100, 2)]
    first, second = serve(arrivals, per_second=1e5).outcomes
    assert second.finished_at - first.finished_at == pytest.approx(1.0)


def test_prefills_do_not_delay_decodes(serve):
    arrivals = [Arrival(0.0, 10, 100), *(Arrival(0.2 + 0.01 * i, 500, 2) for i in range(20))]
    first = serve(arrivals).outcomes[0]
    assert first.tpot < 0.025  # a prefill step takes half a second


def test_everyone_is_served_though_kv_is_short(serve):
    from ep_sim import load

    run = serve(load(60), per_token=0.00005, num_blocks=150)
    assert run.preemptions > 0
    assert not any(outcome.lost for outcome in run.outcomes)


def test_a_prompt_that_comes_with_its_kv_costs_what_a_decode_costs():
    from headrace_engine.sim.disaggregated import TakingOver

    class Asked:
        def step_seconds(self, batch):
            return batch

    taken = TakingOver(Asked()).step_seconds(Batch(300, 9e9, 2, 40, prefills=2))
    assert taken == Batch(decodes=4, decode_context=338)
