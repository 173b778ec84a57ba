"""Host time in the simulated engine: what the GPU waits for, and what clients see of it."""

from math import inf

import pytest
from ep_adapter_trial import MARKS
from ep_sim import Line, load, settings

from headrace_engine.cost.host import HostTime
from headrace_engine.sim.workloads.arrival import Arrival

pytestmark = MARKS
STEP = Line(1.0, 0.0)


def serve(arrivals, host, **changed):
    from headrace_engine.sim.run import simulate

    return simulate(arrivals, settings(**changed), STEP, host=host).outcomes


def test_the_gpu_waits_for_the_host_of_a_synchronous_engine():
    host = HostTime(per_step=0.25, per_request=0.125)
    (outcome,) = serve([Arrival(0.0, 10, 3)], host)
    assert outcome.ttft == 0.25 + 0.125 + 1.0
    assert outcome.tpot == 0.25 + 0.125 + 1.0


@pytest.mark.parametrize(
    ("host", "tpot"),
    [
        (HostTime(per_step=0.75), 1.0),
        (HostTime(per_step=0.5, exposed=0.25), 1.125),
        (HostTime(per_step=1.5), 1.5),
    ],
    ids=["hidden", "a share is not", "longer than the step"],
)
def test_an_asynchronous_engine_hides_what_fits_into_a_step(host, tpot):
    (outcome,) = serve([Arrival(0.0, 10, 41)], host, async_scheduling=True)
    assert outcome.tpot == pytest.approx(tpot, rel=0.02)


def test_the_engine_core_sees_a_request_after_its_intake():
    early, late = serve([Arrival(0.0, 10, 3), Arrival(0.5, 10, 1)], HostTime(intake=1.0))
    assert (early.ttft, early.e2e) == (2.0, 4.0)
    assert late.started_at == 2.0  # seen at 1.5, in the middle of a step


def test_tokens_of_a_step_leave_one_after_another():
    first, second = serve([Arrival(0.0, 10, 2), Arrival(0.0, 10, 2)], HostTime(per_output=0.25))
    assert (first.ttft, second.ttft) == (1.25, 1.5)
    assert (first.e2e, second.e2e) == (2.25, 2.5)


def test_a_front_end_that_is_slower_than_the_steps_falls_behind():
    outcomes = serve([Arrival(0.0, 10, 10) for _ in range(8)], HostTime(per_output=0.5))
    assert max(outcome.e2e for outcome in outcomes) == 1.0 + 8 * 10 * 0.5


def test_a_request_that_the_engine_core_has_not_seen_is_lost_with_it():
    from headrace_engine.sim.engine import SimulatedEngine

    engine = SimulatedEngine(settings(), STEP, host=HostTime(intake=1.0))
    outcome = engine.add(Arrival(0.0, 10, 1), 0.0)
    assert engine.next_event_at == 1.0
    assert engine.fail() == [outcome]
    assert engine.next_event_at == inf


@pytest.mark.parametrize("asynchronous", [False, True])
def test_everyone_is_served_however_slow_the_host(asynchronous):
    slow = HostTime(0.01, 0.001, 0.1, 0.02, 0.0005)
    outcomes = serve(load(40), slow, async_scheduling=asynchronous)
    quick = serve(load(40), HostTime(), async_scheduling=asynchronous)
    assert all(late.e2e > early.e2e for late, early in zip(outcomes, quick, strict=True))
