"""Bookkeeping between reports: nothing is lost, counted twice, or kept for ever."""

from dataclasses import replace

import pytest
from gw_reports import IDLE
from hypothesis import given
from hypothesis import strategies as st

from headrace_gateway.balancers.endpoint import (
    BOOKING_SECONDS,
    MOST_TOKENIZING_SECONDS,
    OVERDUE_SECONDS,
    STALE_SECONDS,
    TOKENIZED_PER_SECOND,
    Endpoint,
    Work,
)


def reported(arrivals=0, arrived_tokens=0, **changes):
    return replace(IDLE, arrivals=arrivals, arrived_tokens=arrived_tokens, **changes)


def test_a_report_taken_too_early_keeps_the_booking():
    endpoint = Endpoint("10.0.0.1")
    endpoint.observe(reported(arrivals=7), now=0.0)
    endpoint.book(Work(requests=1, tokens=100.0), now=0.1)
    endpoint.observe(reported(arrivals=7), now=0.2)
    assert (endpoint.booked_requests, endpoint.booked_tokens) == (1, 100.0)
    endpoint.observe(reported(arrivals=8), now=0.3)
    assert (endpoint.booked_requests, endpoint.booked_tokens) == (0, 0.0)


def test_oldest_bookings_land_first_and_partly():
    endpoint = Endpoint("10.0.0.1")
    endpoint.observe(reported(), now=0.0)
    endpoint.book(Work(requests=1, tokens=10.0, text_bytes=40), now=0.1)
    endpoint.book(Work(requests=4, tokens=400.0, text_bytes=1600), now=0.1)
    landed = endpoint.observe(reported(arrivals=2, arrived_tokens=120), now=0.2)
    assert (endpoint.booked_requests, endpoint.booked_tokens) == (3, 300.0)
    assert (landed.text_bytes, landed.arrived_tokens) == (440.0, 120)


def test_arrivals_from_elsewhere_teach_nothing():
    endpoint = Endpoint("10.0.0.1")
    endpoint.observe(reported(), now=0.0)
    endpoint.book(Work(requests=1, tokens=10.0, text_bytes=40), now=0.1)
    assert endpoint.observe(reported(arrivals=3, arrived_tokens=900), now=0.2) is None
    assert endpoint.booked_requests == 0


def test_a_new_boot_starts_new_books():
    endpoint = Endpoint("10.0.0.1")
    endpoint.observe(reported(arrivals=50), now=0.0)
    endpoint.book(Work(tokens=10.0), now=0.1)
    assert endpoint.observe(reported(arrivals=1, boot="boot-2"), now=0.2) is None
    assert endpoint.booked_tokens == 0.0


def test_lost_requests_expire():
    endpoint = Endpoint("10.0.0.1")
    endpoint.observe(reported(), now=0.0)
    endpoint.book(Work(tokens=10.0), now=0.0)
    endpoint.book(Work(tokens=5.0), now=1.0)
    endpoint.expire_bookings(now=BOOKING_SECONDS + 0.5)
    assert (endpoint.booked_requests, endpoint.booked_tokens) == (1, 5.0)


def test_a_booking_ends_within_seconds_whatever_was_sent():
    endpoint = Endpoint("10.0.0.1")
    endpoint.book(Work(requests=2048, tokens=1e12), now=0.0)
    endpoint.expire_bookings(now=BOOKING_SECONDS + MOST_TOKENIZING_SECONDS + 0.01)
    assert endpoint.booked_requests == 0


def test_what_is_overdue_is_forgotten_and_what_is_not_stays():
    endpoint = Endpoint("10.0.0.1")
    endpoint.observe(reported(), now=0.0)
    endpoint.book(Work(requests=2, tokens=60_000.0), now=0.0)  # to be tokenized, and read but once
    endpoint.book(Work(requests=4, tokens=80.0, copies=4), now=0.0)
    endpoint.forget_overdue(now=OVERDUE_SECONDS + 0.1)
    assert (endpoint.booked_requests, endpoint.booked_tokens) == (2, 60_000.0)
    endpoint.forget_overdue(now=OVERDUE_SECONDS + 60_000 / TOKENIZED_PER_SECOND + 0.1)
    assert (endpoint.booked_requests, endpoint.booked_tokens, endpoint.booked_uncached) == (0, 0.0, 0.0)


def test_of_copies_each_may_be_as_long_as_the_model_takes_but_is_computed_once():
    endpoint = Endpoint("10.0.0.1")
    endpoint.observe(replace(IDLE, max_model_len=400), now=0.0)
    endpoint.book(Work(requests=8, copies=4, tokens=1e6), now=0.0)
    assert endpoint.booked_tokens == 2 * 400
    assert endpoint.uncached_share() == 1 / 4


def test_a_prompt_that_no_engine_could_hold_is_booked_as_a_full_cache():
    endpoint = Endpoint("10.0.0.1")
    endpoint.observe(replace(IDLE, total_kv_blocks=100, block_size=16), now=0.0)
    endpoint.book(Work(tokens=1e6), now=0.0)
    assert endpoint.booked_tokens == 1600
    endpoint.book(Work(requests=3, tokens=4000.0), now=0.0)  # one after the other
    assert endpoint.booked_tokens == 5600


def test_prompts_beyond_the_models_length_are_booked_as_that_long():
    endpoint = Endpoint("10.0.0.1")
    endpoint.observe(replace(IDLE, max_model_len=400), now=0.0)
    endpoint.book(Work(requests=2, tokens=1e6), now=0.0)
    endpoint.book(Work(requests=2, tokens=700.0), now=0.0)
    assert endpoint.booked_tokens == 800 + 700


@pytest.mark.parametrize(
    ("report", "age", "fresh"),
    [
        (None, 0.0, False),
        (IDLE, STALE_SECONDS, True),
        (IDLE, STALE_SECONDS + 0.01, False),
        (replace(IDLE, serving=False), 0.0, False),
    ],
)
def test_fresh_means_reporting_and_making_progress(report, age, fresh):
    endpoint = Endpoint("10.0.0.1")
    if report is not None:
        endpoint.observe(report, now=100.0)
    assert endpoint.is_fresh(100.0 + age) is fresh


steps = st.lists(
    st.one_of(
        st.tuples(st.just("book"), st.integers(1, 5), st.floats(1, 1e5)),
        st.tuples(st.just("land"), st.integers(0, 8), st.just(0.0)),
        st.tuples(st.just("wait"), st.integers(0, 6), st.just(0.0)),
    ),
    max_size=60,
)


@given(steps)
def test_the_books_balance(steps):
    """What is booked equals the list of bookings, and every request leaves the books exactly once."""
    endpoint, now, arrivals, sent, left = Endpoint("10.0.0.1"), 0.0, 0, 0, 0
    endpoint.observe(reported(), now)
    for kind, number, tokens in steps:
        before = endpoint.booked_requests
        if kind == "book":
            endpoint.book(Work(requests=number, tokens=tokens), now)
            sent += number
        elif kind == "land":
            arrivals += number
            endpoint.observe(reported(arrivals=arrivals), now)
            assert endpoint.booked_requests <= max(before - number, 0)
            left += before - endpoint.booked_requests
        else:
            now += number
            endpoint.expire_bookings(now)
            left += before - endpoint.booked_requests
        assert endpoint.booked_requests == sum(booking.requests for booking in endpoint.bookings)
        assert endpoint.booked_tokens == pytest.approx(sum(booking.tokens for booking in endpoint.bookings))
        assert all(booking.requests > 0 and booking.tokens >= 0 for booking in endpoint.bookings)
        assert endpoint.booked_requests == sent - left
