"""A queue before simulated engines: who waits, who is cut for it, where streams go on; nobody is lost."""

from dataclasses import replace
from random import Random

import pytest

from headrace_engine.contracts import GatewayConfig, PolicyDocument
from headrace_engine.cost import catalog
from headrace_engine.sim.fleet import simulate_fleet
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_gateway.simulated import SimulatedGateway

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(600),  # importing vLLM can take minutes on a slow, busy machine
    pytest.mark.filterwarnings("default"),  # vLLM's and torch's own
]

SETTINGS = EngineSettings(num_blocks=65, max_model_len=1024)  # 1,024 tokens
SLICE = 100
LONG = Arrival(0.0, 200, 600)
SHORT = Arrival(1.7, 200, 10)


def serve(arrivals, *, engines=1, tokens=SLICE, queued=True):
    from e2e.bench.runs.central import CentralGateway, Queue
    from headrace_engine.sim.engine import SimulatedEngine

    cost = catalog.find_cost_model("llama-3-8b", "H100")
    made = [
        SimulatedEngine(SETTINGS, cost, PolicyDocument("FCFS"), number=number, listening=True)
        for number in range(engines)
    ]
    balancer = SimulatedGateway(
        GatewayConfig("llm", "chat", ("chat",), "chat"), [engine.link for engine in made], 0
    )
    if not queued:
        return simulate_fleet(arrivals, made, balancer)
    gateway = CentralGateway(balancer, made, tokens)
    return simulate_fleet(arrivals, [*made, Queue(engines)], gateway, relay=gateway)


def test_a_short_request_does_not_wait_for_a_long_one_that_has_had_its_slice():
    arrivals = [LONG, LONG, SHORT]  # the long ones have almost filled the engine by then
    long, other, short = serve(arrivals).outcomes
    assert short.ttft < 0.2
    assert not long.lost
    assert not other.lost
    assert serve(arrivals, queued=False).outcomes[2].ttft > 1


def test_who_has_not_had_a_slice_keeps_its_place():
    arrivals = [LONG, LONG, SHORT]
    run = serve(arrivals, tokens=1000)
    assert run.outcomes[2].ttft > 1


def test_while_there_is_room_nobody_is_cut():
    run = serve([LONG, SHORT])
    assert run.moved == 0
    assert run.outcomes[1].ttft < 0.2


def test_a_request_that_is_preempted_goes_on_where_there_is_room():
    fills_another = Arrival(0.0, 900, 50)
    run = serve([fills_another, replace(LONG, at=0.01), replace(LONG, at=0.02)], engines=2)
    first, long, other = run.outcomes
    assert long.preemptions + other.preemptions == 1
    assert {long.engine, other.engine} == {0, 1}
    assert not first.lost


def test_equals_start_in_order_of_arrival():
    run = serve([LONG, LONG, *(Arrival(1.7 + 0.001 * place, 400, 50) for place in range(8))])
    starts = [outcome.started_at for outcome in run.outcomes]
    assert starts == sorted(starts)


@pytest.mark.parametrize("engines", [1, 3])
def test_every_request_is_served_whole(engines):
    random = Random(engines)
    times = sorted(random.uniform(0, 20) for _ in range(60 * engines))
    arrivals = [Arrival(at, random.randint(1, 400), random.choice((5, 50, 600))) for at in times]
    run = serve(arrivals, engines=engines)
    assert run.moved > 0
    assert not any(outcome.lost for outcome in run.outcomes)
    assert all(outcome.engine < engines for outcome in run.outcomes)
