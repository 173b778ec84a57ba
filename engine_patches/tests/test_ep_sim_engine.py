"""The simulated engine: vLLM's timing, our decisions, and no clock but its own."""

import time
from functools import partial
from math import inf

import pytest
from ep_adapter_trial import BASES, MARKS
from ep_chaos import chaos
from ep_sim import BLOCK, Line, load, settings

from headrace_engine.contracts import PolicyDocument
from headrace_engine.cost.host import NO_HOST_TIME, HostTime
from headrace_engine.policies.engine_view import Targets
from headrace_engine.sim.workloads.arrival import Arrival

pytestmark = MARKS
CACHING = pytest.mark.parametrize("caching", [False, True], ids=["uncached", "cached"])
POLICIES = {
    "stock": None,
    "fcfs": PolicyDocument("FCFS"),
    "larry": PolicyDocument("LARRY"),
    "chaos": lambda limits: chaos(1)[0],
}
HOST = HostTime(per_step=1e-3, per_request=1e-5, exposed=0.5, intake=0.01, per_output=1e-4)
GOLDEN = {  # synchronous, asynchronous; sets of vLLM's that strings are hashed into decide nothing
    "stock": (
        "ac5b74995fade40345495879d490c4a795e25b1f209f3fc05bf56bae266339f5",
        "d7a770092fd67ac410829f42a824e3c4e8c5bad98f9a969b8d9b2a10aacf3bcd",
    ),
    "chaos": (
        "1eece7cdd0e4eb1568546e19488c581ebf6c2f62ce560a863b6e69620bbced8b",
        "cbce35a082aeb105c233161267ef61d8525dd43d458b70939b4aada7d3fb4084",
    ),
}


def simulate(
    arrivals, asynchronous=False, caching=False, policy="fcfs", *, quick=True, host=NO_HOST_TIME, **changed
):
    from headrace_engine.sim import run
    from headrace_engine.sim.engine import SimulatedEngine

    chosen = settings(async_scheduling=asynchronous, prefix_caching=caching, **changed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "SimulatedEngine", partial(SimulatedEngine, quick=quick))
        return run.simulate(arrivals, chosen, Line(), POLICIES[policy], host=host)


def engine(cost=None, policy="fcfs", listening=False, **changed):
    from headrace_engine.sim.engine import SimulatedEngine

    return SimulatedEngine(settings(**changed), cost or Line(), POLICIES[policy], listening=listening)


def finish(driven):
    while driven.next_event_at < inf:
        driven.advance()


@BASES
@CACHING
@pytest.mark.parametrize("watermark", [0.0, 0.05])
def test_patched_fcfs_is_stock(asynchronous, caching, watermark):
    arrivals = load()
    stock = simulate(arrivals, asynchronous, caching, "stock", watermark=watermark)
    assert simulate(arrivals, asynchronous, caching, "fcfs", watermark=watermark) == stock
    assert stock.preemptions
    assert not any(outcome.lost for outcome in stock.outcomes)
    assert bool(sum(outcome.cached_tokens for outcome in stock.outcomes)) == caching


@BASES
@CACHING
@pytest.mark.parametrize("policy", ["stock", "larry", "chaos"])
def test_shortcuts_change_nothing(asynchronous, caching, policy):
    arrivals = load(50)
    quick = simulate(arrivals, asynchronous, caching, policy, host=HOST)
    assert simulate(arrivals, asynchronous, caching, policy, quick=False, host=HOST) == quick
    assert quick.preemptions


@BASES
@CACHING
def test_shortcuts_of_a_calm_engine_tell_the_same(asynchronous, caching):
    from headrace_engine.sim.engine import SimulatedEngine
    from headrace_engine.sim.run import serve

    told = []
    for quick in (True, False):
        chosen = settings(async_scheduling=asynchronous, prefix_caching=caching)
        driven = SimulatedEngine(chosen, Line(), POLICIES["larry"], listening=True, quick=quick)
        serve(driven, load(20, per_second=2.0))
        link, decided = driven.link, driven.decisions.hexdigest()
        told.append((decided, driven.kv_seconds, driven.outcomes, link.board, link.steps, link.requests))
        assert (getattr(driven.scheduler, "_decode_step", None) is not None) == quick
    assert told[0] == told[1]
    assert not driven.preemptions


@BASES
@pytest.mark.parametrize("policy", ["stock", "larry"])
def test_a_slow_host_changes_nothing(asynchronous, policy, monkeypatch):
    arrivals = load(40)
    usual = simulate(arrivals, asynchronous, policy=policy)
    later = iter(range(0, 10**9, 1000))
    for clock in ("time", "monotonic", "perf_counter", "process_time", "thread_time"):
        monkeypatch.setattr(time, clock, lambda: float(next(later)))  # every look at it is 1000 s later
    assert simulate(arrivals, asynchronous, policy=policy) == usual
    assert next(later) > 1000 * usual.steps  # vLLM does look


@pytest.mark.parametrize("policy", GOLDEN)
def test_same_decisions_on_any_machine(policy):
    decided = [simulate(load(50), asynchronous, True, policy).decisions for asynchronous in (False, True)]
    assert tuple(decided) == GOLDEN[policy]


@BASES
def test_an_arrival_waits_for_the_steps_that_are_planned(asynchronous):
    driven = engine(Line(1.0, 0.0), async_scheduling=asynchronous)
    first = driven.add(Arrival(0.0, 100, 10), 0.0)
    assert driven.next_event_at == 0
    driven.advance()
    assert driven.next_event_at == 1
    second = driven.add(Arrival(0.5, 100, 2), 0.5)
    finish(driven)
    assert (first.started_at, first.first_token_at, first.finished_at) == (0, 1, 10)
    behind = 1 if asynchronous else 0  # the step that was planned when the second came
    assert (second.wait, second.ttft, second.e2e) == (0.5, 1.5 + behind, 2.5 + behind)
    assert first.longest_gap == 1
    assert driven.busy_seconds == 10
    third = driven.add(Arrival(50.0, 1, 1), 50.0)
    assert driven.next_event_at == 50
    finish(driven)
    assert third.e2e == 1


@pytest.mark.parametrize(("allowed", "late"), [(None, 0), (1.0, 0), (0.5, 9)])
def test_tokens_that_come_later_than_their_client_allows_are_counted(allowed, late):
    driven = engine(Line(1.0, 0.0))
    served = driven.add(Arrival(0.0, 100, 10, targets=Targets(tpot=allowed)), 0.0)
    finish(driven)
    assert served.late_tokens == late


def test_a_long_prompt_takes_as_many_steps_as_the_budget_asks():
    driven = engine(Line(1.0, 0.0), max_num_batched_tokens=100)
    outcome = driven.add(Arrival(0.0, 450, 3), 0.0)
    finish(driven)
    assert (outcome.ttft, outcome.e2e, driven.steps) == (5, 7, 8)  # the last only tells workers who finished
    assert [batch.prefill_tokens for batch in driven.cost.batches] == [100] * 4 + [50, 0, 0]
    assert driven.cost.batches[1].prefill_work == 100 * 100 + 100 * 101 / 2
    assert driven.cost.batches[-1].decode_context == 451


def test_shared_prefixes_are_found_in_the_cache():
    driven = engine(prefix_caching=True)
    first = driven.add(Arrival(0.0, 500, 2, (1, 2, 3, 4), 128), 0.0)
    second = driven.add(Arrival(0.0, 500, 2, (1, 2, 7, 8), 128), 0.0)  # vLLM enters blocks as it plans them
    finish(driven)
    third = driven.add(Arrival(9.0, 500, 2, (1, 2, 7, 8), 128), 9.0)
    finish(driven)
    assert first.cached_tokens == 0
    assert second.cached_tokens == 2 * 128
    assert third.cached_tokens == 500 // BLOCK * BLOCK
    assert third.ttft < second.ttft


def test_what_the_cache_holds_of_a_prompt_is_told_as_kv_events_would():
    driven = engine(prefix_caching=True)
    later = Arrival(9.0, 500, 2, (1, 2, 7, 8), 128)
    assert driven.cached_blocks(later) == 0
    driven.add(Arrival(0.0, 500, 2, (1, 2, 3, 4), 128), 0.0)
    finish(driven)
    assert driven.cached_blocks(later) == 2 * 128 // BLOCK
    assert driven.cached_blocks(Arrival(9.0, 500, 2)) == 0
    assert engine(prefix_caching=False).cached_blocks(later) == 0


def test_the_watermark_leaves_blocks_free():
    def most_running(watermark):
        driven = engine(num_blocks=101, watermark=watermark, max_num_batched_tokens=2048)
        for _ in range(10):
            driven.add(Arrival(0.0, 160, 2), 0.0)
        most = 0
        while driven.next_event_at < inf:
            driven.advance()
            most = max(most, len(driven.scheduler.running))
        return most

    assert (most_running(0.0), most_running(0.25)) == (10, 7)


def test_samples_and_boards_are_what_the_cost_model_was_asked():
    driven = engine(listening=True, policy="larry", num_blocks=2000)
    for arrival in load(30, per_second=1000.0):
        driven.add(arrival, arrival.at)
    finish(driven)
    told = [(s.prefill_tokens, s.prefill_work, s.decodes, s.decode_context) for s in driven.link.steps]
    asked = [(b.prefill_tokens, b.prefill_work, b.decodes, b.decode_context) for b in driven.cost.batches]
    assert told == asked
    assert sum(sample.seconds for sample in driven.link.steps) == pytest.approx(driven.busy_seconds)
    assert driven.link.board.finishes == len(driven.link.requests) == 30
    records = sorted((record.time, record.prompt_tokens) for record in driven.link.requests)
    assert records == sorted((o.finished_at, o.arrival.prompt_tokens) for o in driven.outcomes)


def test_a_link_that_does_not_listen_is_told_nothing():
    driven = engine(policy="larry")
    driven.add(Arrival(0.0, 100, 5), 0.0)
    finish(driven)
    assert driven.link.board is None
    assert not driven.link.steps
    assert not driven.link.requests


def test_a_failed_engine_loses_what_it_had():
    driven = engine()
    done, running = driven.add(Arrival(0.0, 10, 1), 0.0), driven.add(Arrival(0.0, 10, 100), 0.0)
    while done.lost:
        driven.advance()
    unseen = driven.add(Arrival(0.1, 10, 1), 0.1)
    assert driven.fail() == [running, unseen]
    assert driven.next_event_at == inf
    assert running.lost
    assert unseen.lost


def test_a_slow_engine_takes_longer():
    driven = engine(Line(1.0, 0.0))
    driven.slow_down(3.0)
    outcome = driven.add(Arrival(0.0, 10, 4), 0.0)
    finish(driven)
    assert outcome.e2e == 12


def test_an_impossible_request_is_refused():
    with pytest.raises(
        ValueError, match=r"request at 1\.500 s: 3000 tokens are more than max_model_len, 2048"
    ):
        engine().add(Arrival(1.5, 2900, 100), 1.5)


def test_a_policy_that_admits_nobody_is_overruled():
    from headrace_engine.policies.composition import Policy

    POLICIES["nobody"] = lambda limits: Policy(admission=lambda ranked, view: iter(()))
    outcome = simulate([Arrival(0.0, 10, 5)], policy="nobody").outcomes[0]
    assert not outcome.lost
