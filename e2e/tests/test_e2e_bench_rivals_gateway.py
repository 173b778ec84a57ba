"""What every rival does: same seed, same choices; books that are empty in the end; engines that go."""

from dataclasses import replace

import pytest
from e2e_rivals import Desk

from e2e.bench.rivals import RIVALS
from e2e.bench.runs import fleet
from e2e.bench.runs.fleet import FleetCase, TimedFleet
from headrace_engine.sim.fleet import StreamListener
from headrace_engine.sim.workloads.arrival import Arrival


@pytest.mark.parametrize("kind", RIVALS.values(), ids=RIVALS)
def test_the_books_are_empty_when_all_is_served(kind):
    desk = Desk(kind, engines=3)
    for number in range(20):
        desk.send(1, 2, number % 4, pieces=number % 3)
    for number in range(20):
        desk.begin(number)
    assert all(load.prefill_tokens == 0 for load in desk.rival.loads.values())
    assert sum(load.requests for load in desk.rival.loads.values()) == 20
    for number in range(20):
        desk.end(number)
    assert all(load.requests == 0 for load in desk.rival.loads.values())
    assert isinstance(desk.rival, StreamListener)


@pytest.mark.parametrize("kind", RIVALS.values(), ids=RIVALS)
def test_the_same_seed_chooses_the_same_and_every_engine_is_used(kind):
    def choices(seed):
        desk = Desk(kind, engines=4, seed=seed)
        return [desk.send(pieces=2) for _ in range(40)]

    assert choices(1) == choices(1)
    assert set(choices(1)) == {0, 1, 2, 3}


@pytest.mark.parametrize("kind", RIVALS.values(), ids=RIVALS)
def test_a_lost_engine_gets_nothing_and_without_engines_requests_are_refused(kind):
    desk = Desk(kind, engines=2)
    for _ in range(4):
        desk.send(1, 2, 3)
    desk.rival.drop_engine(0, 1.0)
    assert {desk.send(1, 2, 3) for _ in range(10)} == {1}
    desk.rival.drop_engine(1, 1.0)
    assert desk.rival.choose(Arrival(0.0, 64, 1), 0.0) is None
    assert desk.rival.refused == 1


@pytest.mark.vllm
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("balancer", RIVALS)
def test_rivals_serve_a_simulated_fleet(balancer):
    case = FleetCase("chats", balancer, 0.5, engines=2, requests=8)
    figures = fleet.run_fleet(TimedFleet(case, 4.0))
    again = fleet.run_fleet(TimedFleet(replace(case), 4.0))
    assert figures == again
    assert figures["refused"] == figures["lost"] == 0
