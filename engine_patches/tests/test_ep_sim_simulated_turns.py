"""Simulated engines that share a GPU: one computes at a time, and nothing is lost or comes out different."""

from functools import partial
from itertools import pairwise

import pytest
from ep_adapter_trial import BASES, MARKS
from ep_sim import Line, load, settings

from headrace_engine.contracts import PolicyDocument
from headrace_engine.sim.workloads.arrival import Arrival

pytestmark = MARKS
ORDERS = ("FairShare", "DoublingBudget", "oldest_first", "in_rotation", "by_level")


def group(order="FairShare", engines=2, asynchronous=False, hand_over=0.0, starvation=1e9):
    """Engines of one group, and their turns."""
    from headrace_engine.sim.baselines import turn_orders
    from headrace_engine.sim.engine import SimulatedEngine
    from headrace_engine.sim.simulated_turns import Seat, SimulatedTurns

    turns = SimulatedTurns(getattr(turn_orders, order, order), starvation, hand_over)
    make = partial(
        SimulatedEngine, settings(async_scheduling=asynchronous), Line(), PolicyDocument("FCFS").sealed()
    )
    return [make(number=number, seat=Seat(turns)) for number in range(engines)], turns


def serve(engines, loads):
    from headrace_engine.sim.run import serve_together

    serve_together(engines, loads)


def computing(engine):
    """Whether a step with tokens is in flight."""
    return any(step.output.total_num_scheduled_tokens for step in engine._in_flight)


@BASES
@pytest.mark.parametrize("order", ORDERS)
def test_one_computes_at_a_time_and_all_are_served(asynchronous, order, monkeypatch):
    engines, turns = group(order, 3, asynchronous, hand_over=0.001)
    advance = type(engines[0]).advance

    def watched(engine):
        finished = advance(engine)
        assert sum(map(computing, engines)) <= 1
        return finished

    monkeypatch.setattr(type(engines[0]), "advance", watched)
    loads = [load(60, seed=seed) for seed in range(3)]
    serve(engines, loads)
    for engine, arrivals in zip(engines, loads, strict=True):
        assert [outcome.arrival for outcome in engine.outcomes] == arrivals
        assert not any(outcome.lost for outcome in engine.outcomes)
        assert engine.scheduler._guard.fallback_steps == 0
    assert turns.granted > 3


@BASES
def test_alone_in_its_group_an_engine_serves_as_without_one(asynchronous):
    from headrace_engine.sim.run import simulate

    arrivals = load(60)
    alone = simulate(
        arrivals, settings(async_scheduling=asynchronous), Line(), PolicyDocument("FCFS").sealed()
    )
    engines, turns = group(asynchronous=asynchronous)
    serve(engines, [arrivals, []])
    assert engines[0].outcomes == alone.outcomes
    assert turns.granted > 0


def test_a_hand_over_takes_its_time():
    ends = []
    for seconds in (0.0, 0.01):
        engines, turns = group("in_rotation", hand_over=seconds)
        serve(engines, [load(30, seed=1), load(30, seed=2)])
        ends.append(max(each.finished_at for engine in engines for each in engine.outcomes))
    assert ends[1] - ends[0] > 0.001 * turns.granted


def test_it_comes_out_the_same_each_time():
    both = []
    for _ in range(2):
        engines, _ = group(asynchronous=True, hand_over=0.001)
        serve(engines, [load(40, seed=1), load(40, seed=2)])
        both.append([engine.decisions.hexdigest() for engine in engines])
    assert both[0] == both[1]


def test_in_rotation_nobody_has_two_turns_while_another_waits():
    engines, turns = group("in_rotation")
    holders = []
    grant = turns._rules._grant

    def watched(now):
        sent = grant(now)
        holders.extend((seat, len(turns._rules._waiting)) for seat, _ in sent)
        return sent

    turns._rules._grant = watched
    serve(engines, [load(40, seed=1), load(40, seed=2)])
    assert all(one != other for (one, _), (other, waiting) in pairwise(holders) if waiting)
    assert {seat for seat, _ in holders} == {engine._seat for engine in engines}


def test_in_order_of_arrival_the_older_request_is_served_to_its_end():
    engines, _ = group("oldest_first")
    serve(engines, [[Arrival(0.0, 100, 200)], [Arrival(0.01, 100, 2)]])
    [first], [second] = (engine.outcomes for engine in engines)
    assert second.first_token_at > first.finished_at


def test_who_starves_goes_first():
    waits = {}
    for starvation in (0.05, 1e9):
        engines, _ = group("oldest_first", starvation=starvation)
        serve(engines, [[Arrival(0.0, 100, 400)], [Arrival(0.01, 100, 2)]])
        waits[starvation] = engines[1].outcomes[0].ttft
    assert waits[0.05] < 0.1 < waits[1e9]


def test_stock_takes_no_turns():
    from headrace_engine.sim.engine import SimulatedEngine
    from headrace_engine.sim.simulated_turns import Seat, SimulatedTurns

    with pytest.raises(ValueError, match="stock vLLM takes no turns"):
        SimulatedEngine(settings(), Line(), seat=Seat(SimulatedTurns()))


def shares(order, arrivals, until):
    """Seconds that each of two engines computed by a time at which both still have requests."""
    from headrace_engine.sim.run import _advance_until

    engines, _ = group(order)
    for engine, count in zip(engines, arrivals, strict=True):
        for number in range(count):
            engine.add(Arrival(0.001 * number, 10, 2000), 0.001 * number)
    _advance_until(engines, until)
    return [engine.busy_seconds for engine in engines]


def test_a_fair_share_is_by_requests():
    one, three = shares("FairShare", (2, 6), 2.0)
    assert three / one == pytest.approx(3, rel=0.2)
    one, three = shares("in_rotation", (2, 6), 2.0)
    assert three / one == pytest.approx(1, rel=0.2)
