"""The gateway's own balancers before simulated engines that run vLLM's scheduler."""

from collections import Counter

import pytest

from headrace_engine.contracts import GatewayConfig, PolicyDocument, Slice
from headrace_engine.cost import catalog
from headrace_engine.sim.fleet import Failure, Network, simulate_fleet
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_gateway.simulated import SimulatedGateway, SimulatedRelay

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(600),  # importing vLLM can take minutes on a slow, busy machine
    pytest.mark.filterwarnings("default"),  # vLLM's and torch's own
]

SETTINGS = EngineSettings(num_blocks=4096)


def serve(
    arrivals,
    *,
    engines=2,
    balancer="SAL",
    slow=0.0,
    settings=SETTINGS,
    index=True,
    moves=False,
    slice_tokens=0,
    run=None,
    **options,
):
    from headrace_engine.sim.engine import SimulatedEngine

    cost = catalog.find_cost_model("llama-3-8b", "H100")
    its_slice = Slice(slice_tokens, hand_back=moves) if slice_tokens else None
    document = PolicyDocument("FCFS", slice=its_slice)
    made = [
        SimulatedEngine(settings, cost, document, number=number, listening=True) for number in range(engines)
    ]
    if slow:
        made[0].slow_down(slow)
    config = GatewayConfig("llm", "chat", ("chat",), "chat", balancer=balancer, prefix_caching=index)
    gateway = SimulatedGateway(config, [engine.link for engine in made], 0, **options)
    relay = SimulatedRelay(gateway, 0) if moves else None
    return simulate_fleet(arrivals, made, gateway, relay=relay, **(run or {})), gateway


def steady(count, gap=0.02, prompt=600, output=20):
    lengths = (prompt, prompt // 3, prompt * 2)
    return [Arrival(gap * number, lengths[number % 3], output) for number in range(count)]


def mean_ttft(run):
    return sum(outcome.ttft for outcome in run.outcomes) / len(run.outcomes)


def engines_of(run):
    return Counter(outcome.engine for outcome in run.outcomes)


def test_the_same_seed_makes_the_same_choices():
    first, second = (serve(steady(60), balancer="PowerOfTwo")[0] for _ in range(2))
    assert first.choices == second.choices
    assert [outcome.finished_at for outcome in first.outcomes] == [o.finished_at for o in second.outcomes]


def test_sal_spares_a_slow_engine_and_beats_turns():
    arrivals = steady(120, gap=0.012)
    sal, _ = serve(arrivals, slow=3.0)
    turns, _ = serve(arrivals, slow=3.0, balancer="RoundRobin")
    assert engines_of(turns)[0] == 60
    assert engines_of(sal)[0] < 45
    assert mean_ttft(sal) < 0.7 * mean_ttft(turns)


def test_the_gateway_learns_bytes_per_token_and_the_engines_speed():
    _, gateway = serve(steady(120))
    assert gateway.fleet.token_rate.value() == pytest.approx(0.25, rel=0.1)
    for endpoint in gateway.fleet.endpoints.values():
        assert endpoint.report.prefill_tokens_per_second > 1000
        assert endpoint.report.mean_output_tokens == pytest.approx(20)


def test_without_bookkeeping_requests_herd():
    arrivals = steady(80, gap=0.004)
    booked, _ = serve(arrivals, engines=4)
    forgetful, _ = serve(arrivals, engines=4, bookkeeping=False, run={"network": Network(interval=0.5)})
    assert mean_ttft(booked) < mean_ttft(forgetful)


def test_requests_go_round_a_lost_engine():
    run, gateway = serve(steady(150), run={"failures": [Failure(0.5, 0)]})
    lost = [outcome for outcome in run.outcomes if outcome.lost]
    assert lost
    assert {outcome.engine for outcome in lost} == {0}
    assert all(outcome.engine == 1 for outcome in run.outcomes if outcome.arrival.at > 1.6)
    assert list(gateway.fleet.endpoints) == ["1"]


def test_the_prefix_index_keeps_chats_where_they_are_cached():
    settings = EngineSettings(num_blocks=4096, prefix_caching=True)
    chats = [
        Arrival(
            0.5 * turn + 0.05 * chat,
            512 * (turn + 1),
            8,
            tuple(1000 * chat + b for b in range(turn + 1)),
            512,
        )
        for turn in range(6)
        for chat in range(5)
    ]
    plain, with_index = (
        serve(sorted(chats, key=lambda each: each.at), engines=4, settings=settings, index=index)[0]
        for index in (False, True)
    )
    hits = [sum(outcome.cached_tokens for outcome in run.outcomes) for run in (plain, with_index)]
    assert hits[1] > 1.5 * hits[0]


def test_streams_move_from_a_slow_engine_and_all_end_whole():
    arrivals = steady(40, gap=0.05, output=600)
    stay, _ = serve(arrivals, slow=4.0)
    moved, _ = serve(arrivals, slow=4.0, moves=True)
    assert moved.moved > 0 == stay.moved
    assert all(outcome.finished_at is not None for outcome in moved.outcomes)
    assert max(outcome.e2e for outcome in moved.outcomes) < max(outcome.e2e for outcome in stay.outcomes)


def test_no_stream_moves_between_engines_that_are_alike():
    run, _ = serve(steady(40, gap=0.05, output=600), moves=True)
    assert run.moved == 0


def test_who_steps_back_goes_on_where_there_is_room_and_all_end_whole():
    arrivals = [
        Arrival(0.25 * number, 200, 3000 if number % 8 == 0 else 200, prefix=()) for number in range(160)
    ]
    settings = EngineSettings(num_blocks=400)
    whole, sliced = (
        serve(arrivals, settings=settings, **options)[0]
        for options in ({}, {"slice_tokens": 64, "moves": True})
    )
    assert sliced.moved > 0
    assert all(outcome.finished_at is not None for outcome in sliced.outcomes)
    assert mean_ttft(sliced) < 0.5 * mean_ttft(whole)
