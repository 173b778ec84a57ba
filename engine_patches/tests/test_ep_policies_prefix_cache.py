"""What the prefix cache has of a prompt is charged to nobody, what several hold together once."""

import dataclasses

import pytest
from ep_engine_view import LIMITS, FakeRequest, FakeView
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_engine.policies import accelgen, econoserve, larry
from headrace_engine.policies.admission import prompt_fits
from headrace_engine.policies.econoserve.padded_lengths import PaddedLengths
from headrace_engine.policies.econoserve.peak import FuturePeak
from headrace_engine.policies.engine_view import Targets
from headrace_engine.policies.rotation import PLACED_PER_STEP, ROTATED_PER_STEP
from headrace_engine.policies.step_budget import fixed_budget
from headrace_engine.sim.published_econoserve.ledger import Ledger

POLICIES = pytest.mark.parametrize("policy", [larry, econoserve, accelgen])
BLOCK = LIMITS.block_size


def waits(name, tokens, arrival=0.0, output=16):
    return FakeRequest(name, arrival, tokens, max_tokens=output)


def compose(policy, **parameters):
    return policy.compose(policy.Params(**parameters), LIMITS, fixed_budget(2048))


def ranked(made, view):
    return [request.request_id for request in made.order.ranked(view)]


def joined(policy, view):
    made = compose(policy)
    for request in view.waiting:
        made.add(request)
    return made


def cache(view, name, tokens):
    """Running requests hold the first `tokens` of this one."""
    view.cached[name], view.shared[name] = tokens, tokens // BLOCK


@POLICIES
def test_who_is_cached_counts_for_what_is_left_of_it(policy):
    view = FakeView(waiting=[waits("short", 500), waits("cached", 4000)])
    cache(view, "cached", 3904)
    assert ranked(joined(policy, view), view) == ["cached", "short"]


@POLICIES
def test_the_order_follows_the_cache_while_requests_wait(policy):
    """A running request computes a beginning; later it is evicted."""
    view = FakeView(waiting=[waits("short", 500), waits("long", 4000)])
    made = joined(policy, view)
    assert ranked(made, view) == ["short", "long"]
    cache(view, "long", 3904)
    assert ranked(made, view) == ["long", "short"]
    cache(view, "long", 0)
    assert ranked(made, view) == ["short", "long"]


@POLICIES
def test_looks_in_a_step_are_bounded_and_reach_everyone_in_turn(policy):
    view = FakeView(waiting=[waits(str(number), 4000 - number) for number in range(3 * PLACED_PER_STEP)])
    looks = []
    for name in ("cached_tokens", "shared_blocks"):
        look = getattr(FakeView, name)
        counted = type(
            "Counted", (FakeView,), {name: lambda self, r, look=look: looks.append(r) or look(self, r)}
        )
        watched = counted(**{each.name: getattr(view, each.name) for each in dataclasses.fields(view)})
        made = joined(policy, watched)
        for _ in range(4):
            looks.clear()
            ranked(made, watched)
            assert len(looks) <= 2 * (PLACED_PER_STEP + ROTATED_PER_STEP)
    last = view.waiting[0].request_id  # the longest
    cache(view, last, 3984)
    steps = 0
    while ranked(made, view)[0] != last:
        steps += 1
        assert steps <= len(view.waiting) / ROTATED_PER_STEP + 1


@POLICIES
def test_leaving_undoes_what_joining_and_the_cache_did(policy):
    view = FakeView(waiting=[waits(str(number), 100 + 700 * number) for number in range(20)])
    made = joined(policy, view)
    for number, request in enumerate(list(view.waiting)):
        cache(view, str(19 - number), 96 + 16 * number)
        ranked(made, view)
        made.discard(request)
        view.waiting.remove(request)
    ageing = made.order._ageing
    assert (ageing._blocks, len(ageing._marks)) == (0, 0)
    assert ranked(made, view) == []


def test_shared_blocks_take_no_room_and_cached_ones_that_nobody_holds_do():
    view = FakeView(
        running=[waits("r", 16)], free_blocks=20, waiting=[waits("held", 1600), waits("kept", 1600)]
    )
    cache(view, "held", 1504)
    view.cached["kept"] = 1504
    admitted = []
    for request in prompt_fits(list(view.waiting), view):
        view.admit(request)
        admitted.append(request.request_id)
    assert admitted == ["held"]
    assert view.free_blocks == 20 - 6


def test_a_long_prompt_that_is_cached_can_still_be_in_time():
    view = FakeView(now=0.5, default_targets=Targets(ttft=1.0), waiting=[waits("cached", 40_000)])
    made = compose(accelgen)
    made.add(view.waiting[0])
    made.step_budget.deadlines.step = 0.1  # seconds; 20 steps of 2048 tokens
    ranked(made, view)
    made.plan(view)
    made.order._settle(view)
    view.cached["cached"] = 39_984
    ranked(made, view)
    assert made.gauges()[:2] == (1, 0)


sizes = st.tuples(st.integers(1, 300), st.integers(1, 60))
"""Tokens beside the shared beginning, and output tokens left."""


def counted(running, candidate, beginning):
    """Most tokens in use, as predicted, at any step until the candidate ends; the beginning once."""
    waste = (BLOCK - 1) / 2
    everyone = [*running, candidate]
    return beginning + max(
        sum(own + step + waste for own, left in everyone if left >= step) for step in range(candidate[1] + 1)
    )


@settings(max_examples=60)
@given(st.lists(sizes, min_size=2, max_size=8), sizes, st.integers(0, 40))
def test_a_beginning_that_all_share_is_in_the_peak_once(running, candidate, blocks):
    limits = dataclasses.replace(LIMITS, total_blocks=100)
    beginning = blocks * BLOCK
    view = FakeView(
        limits=limits,
        running=[waits(str(n), beginning + own, 0.0, left) for n, (own, left) in enumerate(running)],
    )
    view.shared = {request.request_id: blocks for request in view.running}
    view.free_blocks = 100 - blocks - sum(map(limits.blocks, (own for own, _ in running)))
    peak = FuturePeak(limits, 0, PaddedLengths(0, 0))
    peak.follow(view)
    own, left = candidate
    needed = counted(running, candidate, beginning)
    slack = BLOCK * len(running)  # blocks in use are whole
    fits = peak.fits(own, left)
    assert fits == (needed <= 1600) or abs(needed - 1600) <= slack


def test_who_is_left_alone_with_a_beginning_has_it_for_itself():
    limits = dataclasses.replace(LIMITS, total_blocks=100)
    first, second = waits("first", 1000, 0.0, 100), waits("second", 1000, 0.0, 100)
    view = FakeView(limits=limits, running=[first, second], shared={"first": 60, "second": 60})
    view.free_blocks = 100 - 60 - 3 - 3
    peak = FuturePeak(limits, 0, PaddedLengths(0, 0))
    peak.follow(view)
    assert peak._common >= 960
    view.running, view.shared, view.free_blocks = [second], {}, 100 - 63
    for _ in range(2):
        peak.follow(view)
    assert peak._common == 0
    assert peak.fits(400, 90)
    assert not peak.fits(600, 90)


def test_the_books_allot_a_shared_beginning_once():
    ledger = Ledger(dataclasses.replace(LIMITS, total_blocks=100), 10)
    first = ledger.start_prompt(waits("first", 320))
    assert ledger.reserve == 10 - 20
    ledger.allot(first, 32, None)
    assert (ledger.free, ledger.reserve) == (90 - 22, 10)
    second = ledger.start_prompt(waits("second", 352), 20)
    assert (ledger.free, ledger.reserve) == (68 - 20, 10 - 2)  # until the first gives it up
    ledger.allot(second, 32, None)
    ledger.share(first, 20)
    assert ledger.free == 90 - 20 - 2 - 4
    ledger.close(first.request)
    assert (ledger.free, ledger.reserve) == (90 - 20 - 4, 10)
    ledger.close(second.request)
    assert (ledger.free, ledger.reserve) == (90, 10)


@POLICIES
@given(st.lists(st.integers(1, 4000), max_size=40), st.data())
def test_an_engine_that_keeps_no_kv_orders_as_one_that_has_nothing_cached(policy, lengths, data):
    limits = [dataclasses.replace(LIMITS, keeps_kv=keeps) for keeps in (True, False)]
    views = [FakeView(limits=each) for each in limits]
    both = [policy.compose(policy.Params(), each, fixed_budget(2048)) for each in limits]
    queue = [waits(str(number), tokens, arrival=number / 8) for number, tokens in enumerate(lengths)]
    for request in queue:
        for made, view in zip(both, views, strict=True):
            made.add(request)
            view.waiting.append(request)
            view.now = request.arrival_time
        orders = [ranked(made, view) for made, view in zip(both, views, strict=True)]
        assert orders[0] == orders[1]
        if data.draw(st.booleans()):
            started = next(each for each in queue if each.request_id == orders[0][0])
            for made, view in zip(both, views, strict=True):
                made.discard(started)
                view.waiting.remove(started)
