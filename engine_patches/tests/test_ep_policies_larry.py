"""Ageing: who is overdue, against the definition; how far anyone can be passed over."""

from ep_engine_view import LIMITS, FakeRequest, FakeView
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_engine.policies.ageing import SAMPLES, Ageing
from headrace_engine.policies.larry import LoadAdaptiveOrder

prompts = st.integers(1, 4000)
patiences = st.sampled_from([1, 50, 100, 150, 300])
steps = st.lists(st.tuples(st.lists(prompts, max_size=6), st.integers(0, 4)), min_size=1, max_size=25)
"""Of each step: prompts that join, and how many of the ranked start."""


def blocks(request):
    return LIMITS.blocks(request.num_tokens)


@settings(max_examples=40)
@given(steps, patiences)
def test_overdue_go_first_and_the_others_follow_by_score(steps, patience):
    aged, paper = LoadAdaptiveOrder(10, patience, LIMITS), LoadAdaptiveOrder(10, 0, LIMITS)
    waiting, seen, deepest = [], {}, 0
    for now, (joining, starts) in enumerate(steps):
        for tokens in joining:
            request = FakeRequest("r", float(now), tokens)
            seen[request] = 0
            waiting.append(request)
            aged.add(request)
            paper.add(request)
        deepest = max(deepest, sum(map(blocks, waiting)))
        overdue = [request for request in waiting if 100 * seen[request] > patience * deepest]
        others = [request for request in paper.ranked(FakeView(waiting)) if request not in overdue]
        ranked = list(aged.ranked(FakeView(waiting)))
        assert ranked == overdue + others
        for request in ranked[:starts]:
            waiting.remove(request)
            aged.discard(request)
            paper.discard(request)
            for each in waiting:
                seen[each] += blocks(request)
        if not waiting:
            deepest = 0


@settings(max_examples=40)
@given(st.lists(prompts, min_size=1, max_size=12), patiences)
def test_nobody_is_passed_over_for_longer_than_patience_allows(joining, patience):
    """One long prompt among many short ones, of which one joins whenever one starts."""
    order, deepest = LoadAdaptiveOrder(0, patience, LIMITS), 0
    long = FakeRequest("long", 0.0, 800)
    waiting = [long] + [FakeRequest("r", 0.0, tokens) for tokens in joining]
    for request in waiting:
        order.add(request)
    deepest, passed = sum(map(blocks, waiting)), 0
    largest = max(map(blocks, waiting[1:]))
    while (first := next(order.ranked(FakeView(waiting)))) is not long:
        passed += blocks(first)
        assert passed <= patience / 100 * (deepest + largest) + largest
        order.discard(first)
        order.add(FakeRequest("r", 1.0, first.num_tokens))


def test_without_patience_nobody_is_overdue():
    order = LoadAdaptiveOrder(0, 0, LIMITS)
    long = FakeRequest("long", 0.0, 8000)
    order.add(long)
    for second in range(500):
        short = FakeRequest("short", float(second), 16)
        order.add(short)
        assert next(order.ranked(FakeView([long, short]))) is short
        order.discard(short)


def test_ageing_starts_anew_when_the_queue_was_empty():
    ageing = Ageing(100, LIMITS)
    burst = [FakeRequest("r", 0.0, 16) for _ in range(100)]
    for request in burst:
        ageing.record_join(request, 1)
    assert not list(ageing.overdue(FakeView(burst)))
    for request in burst:
        ageing.record_leave(request, 1)
    old, new = FakeRequest("old", 1.0, 16), FakeRequest("new", 1.0, 16)
    ageing.record_join(old, 1)
    ageing.record_join(new, 1)
    assert not list(ageing.overdue(FakeView([old, new])))
    ageing.record_leave(new, 1)
    for _ in range(2):
        ageing.record_join(new, 1)
        ageing.record_leave(new, 1)
    assert list(ageing.overdue(FakeView([old]))) == [old]


def test_work_counts_the_output_that_running_requests_hold():
    """Where outputs hold most of the KV, prompts say little: every start passes about the same."""

    class Running(FakeRequest):
        num_prompt_tokens = 16

    view = FakeView(running=[Running("a", 0.0, 16 * 99), Running("b", 0.0, 16 * 103)])
    ageing = Ageing(100, LIMITS)
    waiting = [FakeRequest("long", 0.0, 160), *(FakeRequest("r", 0.0, 16) for _ in range(2))]
    for request in waiting:
        ageing.record_join(request, blocks(request))
    for _ in range(SAMPLES):
        assert not list(ageing.overdue(view))
    for started in range(1, 4):  # three of 101 blocks are less than the deepest: 12 + 3 * 100
        ageing.record_join(waiting[2], 1) if started > 1 else None
        ageing.record_leave(waiting[2], 1)
        assert not list(ageing.overdue(view))
    ageing.record_join(waiting[2], 1)
    ageing.record_leave(waiting[2], 1)
    assert next(ageing.overdue(view)) is waiting[0]


def test_while_all_slots_are_taken_every_start_counts_alike():
    """Then a short prompt delays the others as much as a long one does."""
    view = FakeView(running=[FakeRequest("r", 0.0, 160) for _ in range(LIMITS.max_running)])
    ageing = Ageing(100, LIMITS)
    waiting = [FakeRequest("long", 0.0, 16 * 100), *(FakeRequest("r", 0.0, 16) for _ in range(2))]
    for request in waiting:
        ageing.record_join(request, blocks(request))
    for started in range(1, 5):
        ageing.record_leave(waiting[2], 1)
        ageing.record_join(waiting[2], 1)
        overdue = list(ageing.overdue(view))
        assert overdue == (waiting[:2] if started > 3 else [])  # the queue held three at most


def passes(ageing, number):
    for each in range(number):
        request = FakeRequest(f"short {each}", 1.0, 16)
        ageing.record_join(request, 1)
        ageing.record_leave(request, 1)


def test_who_lost_its_kv_is_as_old_as_if_it_had_waited_all_along():
    ageing = Ageing(100, LIMITS)
    stream, fresh = FakeRequest("stream", 0.0, 160), FakeRequest("fresh", 1.0, 16)
    ageing.record_join(stream, 10)
    ageing.record_leave(stream, 10)  # it runs,
    passes(ageing, 50)
    stream.num_preemptions, stream.num_tokens = 1, 320
    ageing.record_join(stream, 20)  # and loses its KV
    ageing.record_join(fresh, 1)
    assert list(ageing.overdue(FakeView([stream, fresh]))) == [stream]
    ageing.record_leave(stream, 20)
    ageing.record_leave(fresh, 1)
    assert not ageing._back


def test_requests_that_ended_are_forgotten():
    ageing, running = Ageing(100, LIMITS), FakeRequest("runs", 0.0, 16)
    ageing.record_join(running, 1)
    ageing.record_leave(running, 1)
    for _ in range(20):
        passes(ageing, 200)
        list(ageing.overdue(FakeView(running=[running])))
    assert len(ageing._ran) < 1000
    assert running.request_id in ageing._ran


def test_a_stream_that_lost_its_kv_goes_first_but_in_the_papers_form():
    stream = FakeRequest("stream", 0.0, 3200, num_output_tokens=100, num_preemptions=1)
    short = FakeRequest("short", 1.0, 16)
    for patience, first in ((150, stream), (0, short)):
        order = LoadAdaptiveOrder(0, patience, LIMITS)
        order.add(stream)  # it started,
        order.discard(stream)
        order.add(short)
        order.add(stream)
        assert next(iter(order.ranked(FakeView([short, stream])))) is first
