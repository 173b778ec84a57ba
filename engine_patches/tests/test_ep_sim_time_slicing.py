"""GPUs in time slices: who computes alone has all of them, and several have equal parts."""

import pytest
from ep_adapter_trial import MARKS
from ep_sim import Line, load, settings

from headrace_engine.cost.host import HostTime
from headrace_engine.sim.workloads.arrival import Arrival

pytestmark = MARKS


def sliced(engines=2, host=None, **changed):
    """Engines that share GPUs."""
    from headrace_engine.cost.host import NO_HOST_TIME
    from headrace_engine.sim.baselines.time_slicing import TimeSlicedEngine, TimeSlices
    from headrace_engine.sim.engine import SimulatedEngine

    slices = TimeSlices()
    made = [SimulatedEngine(settings(**changed), Line(), host=host or NO_HOST_TIME) for _ in range(engines)]
    return [TimeSlicedEngine(engine, slices) for engine in made]


def serve(engines, loads):
    from headrace_engine.sim.run import serve_together

    serve_together(engines, loads)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("host", [None, HostTime(intake=0.001, per_step=0.002, per_output=0.0001)])
def test_who_is_alone_is_served_as_on_gpus_of_its_own(overlap, host):
    from headrace_engine.cost.host import NO_HOST_TIME
    from headrace_engine.sim.run import simulate

    arrivals = load(60)
    engines = sliced(host=host, async_scheduling=overlap)
    serve(engines, [arrivals, []])
    expected = simulate(arrivals, settings(async_scheduling=overlap), Line(), host=host or NO_HOST_TIME)
    assert engines[0].outcomes == expected.outcomes


def test_two_that_compute_all_the_time_take_twice_as_long():
    [alone] = sliced(1)
    serve([alone], [[Arrival(0.0, 100, 50)]])
    engines = sliced()
    serve(engines, [[Arrival(0.0, 100, 50)]] * 2)
    for engine in engines:
        assert engine.outcomes[0].finished_at == pytest.approx(2 * alone.outcomes[0].finished_at)


def test_whose_neighbour_comes_and_goes_in_the_middle_of_a_step_loses_half_of_that_time():
    [alone] = sliced(1)
    serve([alone], [[Arrival(0.0, 500, 1)]])  # one step of 30 ms
    engines = sliced()
    serve(engines, [[Arrival(0.0, 500, 1)], [Arrival(0.01, 100, 1)]])  # the other's: 10 ms
    [[long], [short]] = (engine.outcomes for engine in engines)
    assert long.finished_at == pytest.approx(alone.outcomes[0].finished_at + 0.01)
    assert short.finished_at == pytest.approx(0.01 + 0.02)


def test_gpus_stand_still_only_when_nobody_computes(monkeypatch):
    from headrace_engine.sim.baselines.time_slicing import TimeSlices

    engines = sliced(3, HostTime(per_step=0.002, exposed=0.5), async_scheduling=True)
    used, move_to = [], TimeSlices.move_to

    def watched(slices, now):
        used.append((now - slices.now) * bool(slices.computing()))
        move_to(slices, now)

    monkeypatch.setattr(TimeSlices, "move_to", watched)
    loads = [load(40, seed=seed) for seed in range(3)]
    serve(engines, loads)
    assert sum(used) == pytest.approx(sum(engine.engine.busy_seconds for engine in engines), abs=1e-5)
    for engine, arrivals in zip(engines, loads, strict=True):
        assert [outcome.arrival for outcome in engine.outcomes] == arrivals
        assert not any(outcome.lost for outcome in engine.outcomes)
