"""Whole models that are switched: one is loaded at a time, and whoever asked first has the next."""

import pytest
from ep_adapter_trial import MARKS
from ep_sim import Line, load, settings

from headrace_engine.sim.workloads.arrival import Arrival

pytestmark = MARKS
SECONDS = 4.0


def switched(engines=2):
    """Engines of one GPU, and their switch."""
    from headrace_engine.sim.baselines.model_switching import Switch, SwitchedEngine
    from headrace_engine.sim.engine import SimulatedEngine

    switch = Switch(SECONDS)
    made = [SwitchedEngine(SimulatedEngine(settings(), Line()), switch) for _ in range(engines)]
    return made, switch


def serve(engines, loads):
    from headrace_engine.sim.run import serve_together

    serve_together(engines, loads)


def test_the_first_is_loaded_and_serves_as_alone():
    from headrace_engine.sim.run import simulate

    arrivals = load(60)
    engines, switch = switched()
    serve(engines, [arrivals, []])
    assert engines[0].outcomes == simulate(arrivals, settings(), Line()).outcomes
    assert switch.switches == 0


def test_another_waits_until_the_loaded_has_finished_and_for_the_switch():
    engines, switch = switched()
    serve(engines, [[Arrival(0.0, 100, 200)], [Arrival(0.01, 100, 2)]])
    [first], [second] = (engine.outcomes for engine in engines)
    assert second.started_at == pytest.approx(first.finished_at + SECONDS)
    assert switch.switches == 1


def test_who_comes_after_another_has_asked_waits_even_if_its_model_is_loaded():
    engines, switch = switched()
    serve(engines, [[Arrival(0.0, 100, 200), Arrival(0.02, 100, 2)], [Arrival(0.01, 100, 2)]])
    [_, late], [other] = (engine.outcomes for engine in engines)
    assert late.started_at == pytest.approx(other.finished_at + SECONDS)
    assert switch.switches == 2


def test_all_are_served_and_two_never_compute_at_once(monkeypatch):
    engines, _ = switched(3)
    advance = type(engines[0]).advance

    def watched(engine):
        advance(engine)
        assert sum(bool(each.engine._in_flight) for each in engines) <= 1

    monkeypatch.setattr(type(engines[0]), "advance", watched)
    loads = [load(40, seed=seed) for seed in range(3)]
    serve(engines, loads)
    for engine, arrivals in zip(engines, loads, strict=True):
        assert [outcome.arrival for outcome in engine.outcomes] == arrivals
        assert not any(outcome.lost for outcome in engine.outcomes)
