"""Requests that are made of sums have these sums, and come when the real ones came."""

from random import Random
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_planning import NOON, window

from headrace_engine.contracts.traffic import SLOTS, WINDOW_SECONDS
from headrace_operator.placement.problem import Request
from headrace_operator.placement.traffic import (
    Lengths,
    Span,
    add_up,
    busiest_span,
    make_requests,
    sum_up,
)

LONGEST = 8192
MOST = 10_000


def all_of(windows):
    return Span(windows[0].start, windows[-1].start + WINDOW_SECONDS - windows[0].start)


windows_of_any_service = st.lists(
    st.builds(
        window,
        st.integers(0, 20),
        st.dictionaries(st.integers(0, SLOTS - 1), st.integers(1, 30), min_size=1, max_size=5),
        prompt=st.integers(1, 20_000),
        output=st.integers(1, 20_000),
    ),
    max_size=8,
)


def test_engines_of_a_service_are_added_up():
    one = [window(0, {3: 2}, met=2), window(2)]
    other = [window(0, {3: 1, 5: 4}, prompt=100, met=1, e2e=3.0), window(1)]
    first, second, third = add_up([*one, *other])
    assert (first.requests, first.arrivals[3], first.arrivals[5], first.met) == (7, 3, 4, 3)
    assert (first.prompt_tokens, first.e2e_seconds) == (2 * 500 + 5 * 100, 2 * 1.0 + 5 * 3.0)
    assert (second, third) == (other[1], one[1])


def test_means_and_deviations_are_of_all_windows():
    summary = sum_up([window(0, {0: 3}, prompt=100, met=3, e2e=1.0), window(1, {0: 1}, prompt=500, e2e=5.0)])
    assert summary.requests == 4
    assert summary.prompt == pytest.approx((200, pstdev([100, 100, 100, 500])))
    assert summary.output == pytest.approx((100, 0))
    assert (summary.attainment, summary.mean_e2e) == (0.75, 2.0)
    assert sum_up([]) is None


@given(mean=st.floats(50, 5000), spread=st.floats(0, 2), count=st.integers(20, 400))
def test_lengths_have_their_mean_and_no_order(mean, spread, count):
    lengths = Lengths(mean, spread * mean)
    drawn = lengths.draw(count, Random(1))
    assert len(drawn) == count
    assert min(drawn) >= 1
    assert fmean(drawn) == pytest.approx(mean, rel=0.25 * max(spread, 0.05))  # the far tail is cut off
    assert sorted(drawn) == sorted(lengths.draw(count, Random(2)))


def test_lengths_have_their_deviation():
    drawn = Lengths(1000.0, 800.0).draw(5000, Random(0))
    assert (fmean(drawn), pstdev(drawn)) == pytest.approx((1000, 800), rel=0.02)


def test_requests_come_in_their_half_seconds():
    windows = [window(0, {4: 10}), window(3, {0: 2, 39: 1})]
    requests = make_requests(windows, all_of(windows), LONGEST, MOST, Random(0))
    assert [int(each.at * 2) for each in requests] == [4] * 10 + [120] * 2 + [159]
    assert {each[1:] for each in requests} == {(500, 100)}
    assert requests == make_requests(windows, all_of(windows), LONGEST, MOST, Random(0))


def test_no_request_is_longer_than_its_engine_takes():
    windows = [window(0, {0: 1}, prompt=90_000, output=50), window(1, {0: 1}, prompt=10, output=90_000)]
    for request in make_requests(windows, all_of(windows), LONGEST, MOST, Random(0)):
        assert request.prompt_tokens >= 1 <= request.output_tokens
        assert request.tokens <= LONGEST


def test_a_service_without_requests_in_the_span_has_none():
    assert make_requests([window(0)], Span(NOON + 20, 40.0), LONGEST, MOST, Random(0)) == ()


def test_the_span_is_as_long_as_its_requests_allow_and_the_busiest():
    chat = [window(number, {0: 2}) for number in range(6)]
    code = [window(4, {1: 5})]
    assert busiest_span([chat, code], 100) == Span(NOON, 120.0)
    assert busiest_span([chat, code], 11) == Span(NOON + 40, 60.0)
    assert busiest_span([chat, code], 9) == Span(NOON + 60, 40.0)
    assert busiest_span([[], []], 9) == Span(0, 0.0)


def test_of_windows_that_are_all_too_busy_the_busiest_is_taken():
    windows = [window(0, dict.fromkeys(range(SLOTS), 10)), window(1, dict.fromkeys(range(SLOTS), 20))]
    span = busiest_span([windows], 200)
    assert span == Span(NOON + WINDOW_SECONDS, WINDOW_SECONDS)
    assert len(make_requests(windows, span, LONGEST, 200, Random(0))) == 200


@given(st.lists(windows_of_any_service, min_size=1, max_size=3), st.integers(1, 300))
def test_what_is_made_is_what_came(services, most):
    told = [add_up(windows) for windows in services]
    span = busiest_span(told, most)
    made = [make_requests(windows, span, LONGEST, MOST, Random(0)) for windows in told]
    if not any(told):
        assert made == [()] * len(told)
        return
    inside = [span.select(windows) for windows in told]
    assert sum(map(len, made)) <= most or span.seconds == WINDOW_SECONDS
    for windows, requests in zip(inside, made, strict=True):
        assert len(requests) == sum(each.requests for each in windows)
    for requests in made:
        assert list(requests) == sorted(requests, key=lambda each: each.at)
        assert all(isinstance(each, Request) and 0 <= each.at < span.seconds + 0.5 for each in requests)


def test_more_requests_than_are_wanted_are_cut_off():
    requests = make_requests([window(0, {0: 10**20}), window(1)], Span(NOON, 40.0), LONGEST, 50, Random(0))
    assert len(requests) == 50
