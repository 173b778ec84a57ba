"""The order of waiting requests against plain sorts, as time passes and requests come and go."""

from math import inf

from ep_engine_view import LIMITS, FakeRequest, FakeView
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_engine.policies.econoserve.padded_lengths import PaddedLengths
from headrace_engine.policies.econoserve.task_queue import (
    FORGOTTEN_LATE,
    LOST_WEIGHT,
    PLACED_PER_STEP,
    Deadlines,
    StepAverage,
    TaskQueue,
    by_footprint,
)
from headrace_engine.policies.engine_view import Targets
from headrace_engine.sim.published_econoserve.rankings import RANGES, SearchedQueue, by_three_keys

LENGTHS = PaddedLengths(0, 0)

waiting = st.lists(st.tuples(st.integers(1, 900), st.integers(1, 300), st.integers(1, 40)), max_size=12)
"""Prompt tokens, predicted output, and the E2E target in quarter seconds."""


def lined_up(ranking, requests, patience=0, kind=TaskQueue):
    queue = kind(ranking, Deadlines(StepAverage()), patience, LIMITS)
    view = FakeView()
    for place, (prompt, output, quarters) in enumerate(requests):
        request = FakeRequest(str(place), 0.0, prompt, max_tokens=output)
        view.waiting.append(request)
        view.targets_of[str(place)] = Targets(e2e=quarters / 4)
        queue.add(request)
    return queue, view


def deadline(view, request):
    return view.targets(request).e2e


@settings(max_examples=40)
@given(waiting, st.lists(st.integers(0, 20), max_size=4))
def test_footprint_orders_by_kv_and_time_and_what_is_late_counts_for_more(requests, looks):
    queue, view = lined_up(by_footprint(LENGTHS), requests)

    def key(request):
        footprint = (request.num_tokens + request.max_tokens / 2) * request.max_tokens
        return footprint * (LOST_WEIGHT if view.now > deadline(view, request) else 1)

    for now in sorted(looks):
        view.now = now / 2
        assert list(queue.ranked(view)) == sorted(view.waiting, key=key)


@settings(max_examples=40)
@given(waiting, st.lists(st.integers(0, 20), max_size=4))
def test_three_keys_order_by_range_then_length_and_what_is_late_is_last(requests, looks):
    queue, view = lined_up(by_three_keys(), requests, kind=SearchedQueue)

    def key(request):
        spare = deadline(view, request) - view.now
        nearest = next((place for place, end in enumerate(RANGES) if spare <= end), len(RANGES))
        return inf if spare < 0 else nearest, -request.num_tokens

    for now in sorted(looks):
        view.now = now / 2 + 0.01  # off the edges of the ranges
        ranked = list(queue.ranked(view))
        assert ranked == sorted(view.waiting, key=key)
        for tokens in (0, 100, 500):
            fitting = [request for request in ranked if request.num_tokens <= tokens]
            assert list(queue.longest_within(tokens)) == fitting


def two_with_deadlines():
    """Steps take half a second; the latest starts of the two are 1.2 and 8.5."""
    average = StepAverage()
    average.seconds = 0.5
    queue = TaskQueue(by_footprint(LENGTHS), Deadlines(average), 0, LIMITS)
    view = FakeView()
    soon, late = (FakeRequest(name, 0.0, 10, max_tokens=1) for name in ("soon", "late"))
    view.waiting += [soon, late]
    view.targets_of = {"soon": Targets(e2e=1.7), "late": Targets(e2e=9.0)}
    for request in view.waiting:
        queue.add(request)
    assert list(queue.ranked(view)) == [soon, late]
    return queue, view, soon, late


def test_who_can_not_start_in_time_any_more_is_ranked_before_the_next_step():
    queue, view, soon, late = two_with_deadlines()
    view.now = 0.5
    queue.prepare(view)
    assert list(queue.ranked(view)) == [soon, late]
    view.now = 1.0
    queue.prepare(view)
    view.now, view.targets_asked = 1.5, 0
    assert list(queue.ranked(view)) == [late, soon]
    assert view.targets_asked == 0


def test_who_can_start_in_time_after_all_keeps_its_rank():
    queue, view, soon, late = two_with_deadlines()
    view.now = 1.0
    queue.prepare(view)
    view.now = 1.1  # sooner than steps are on average
    assert list(queue.ranked(view)) == [soon, late]
    queue.prepare(view)
    queue.discard(soon)
    view.now = 1.15
    assert list(queue.ranked(view)) == [late]


def test_who_leaves_is_forgotten_also_before_anyone_looked():
    queue, view = lined_up(by_footprint(LENGTHS), [(10, 10, 8), (20, 10, 8), (30, 10, 8)])
    first, second, third = view.waiting
    queue.discard(second)
    assert list(queue.ranked(view)) == [first, third]
    queue.discard(first)
    queue.add(second)
    view.now = 100.0
    assert list(queue.ranked(view)) == [second, third]
    assert len(queue) == 2


def test_who_left_is_not_kept_until_the_deadline_it_had():
    queue, view = lined_up(by_footprint(LENGTHS), [])
    for number in range(2000):
        request = FakeRequest(str(number), 0.0, 100, max_tokens=10)
        view.targets_of[str(number)] = Targets(e2e=86_400.0)
        queue.add(request)
        assert list(queue.ranked(view)) == [request]
        queue.discard(request)
    assert not queue._numbered
    assert len(queue._look_again) <= FORGOTTEN_LATE + 1


def test_the_pace_is_that_of_steps_in_which_somebody_runs():
    step_average, view = StepAverage(), FakeView()
    for now in (0.0, 5.0, 10.0):  # nobody runs
        view.now = now
        step_average.observe_step(view)
    assert step_average.seconds == 0
    view.running.append(FakeRequest("r", 0.0, 16))
    for now in (20.0, 20.5, 21.0):
        view.now = now
        step_average.observe_step(view)
    assert step_average.seconds == 0.5


def test_a_step_places_a_bounded_number_of_requests_however_many_join_or_miss_their_deadline_at_once():
    limits, view = LIMITS, FakeView()
    queue = TaskQueue(by_footprint(LENGTHS), Deadlines(StepAverage()), 0, limits)
    requests = [FakeRequest(str(place), 0.0, 1000 - place, max_tokens=10) for place in range(500)]
    for request in requests:
        view.targets_of[request.request_id] = Targets(e2e=5.0)
        queue.add(request)

    def look():
        view.targets_asked = 0
        ranked = list(queue.ranked(view))
        assert sorted(map(id, ranked)) == sorted(map(id, requests))
        assert view.targets_asked <= 2 * PLACED_PER_STEP
        return ranked

    ranked = look()
    assert ranked == [
        *reversed(requests[:PLACED_PER_STEP]),
        *requests[PLACED_PER_STEP:],
    ]  # the others in order of joining
    queue.discard(requests.pop())  # one that has no place yet
    for _ in range(len(requests) // PLACED_PER_STEP):
        ranked = look()
    assert ranked == list(reversed(requests))
    view.now = 6.0  # all are late
    for _ in range(len(requests) // PLACED_PER_STEP + 2):
        assert look() == list(reversed(requests))
    assert view.targets_asked == 0
