"""Which streams move: none for nothing, those of slow and full engines, and only to where there is room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.contracts import LoadReport
from headrace_gateway.balancers.endpoint import Endpoint, Work
from headrace_gateway.pick.rebalance import (
    LEAST_HERE,
    MOST_AT_ONCE,
    PART,
    TERMINATING,
    WAITING_SECONDS,
    Progress,
    Surplus,
    has_room,
    read_surpluses,
    surpluses,
    to_hand_over,
    write_surpluses,
)


def engine(address="a", *, step=0.01, running=20, waiting=0, free=500, wanted=0):
    endpoint = Endpoint(address)
    report = LoadReport(
        *("boot", 0.0, True, running, waiting, 0, 0, wanted, free, 1000, 16, 0, 0, 0),
        *(1000.0, step, 100.0, 100.0),
    )
    endpoint.observe(report, 0.0)
    return endpoint


def test_engines_that_are_alike_keep_their_streams():
    assert surpluses([engine("a"), engine("b", step=0.012), engine("c", running=25)]) == {}


def test_a_slow_engine_hands_over_a_part_of_what_it_runs():
    assert surpluses([engine("a", step=0.02), engine("b")]) == {"a": Surplus(PART, "Running")}


def test_steps_that_are_all_short_are_no_reason():
    assert surpluses([engine("a", step=0.0015), engine("b", step=0.001)]) == {}


def test_a_single_stream_stays_wherever_it_is():
    assert surpluses([engine("a", step=0.1, running=1), engine("b")]) == {}


def test_where_requests_wait_others_take_over_as_many():
    assert surpluses([engine("a", running=30, waiting=10), engine("b")]) == {"a": Surplus(0.25, "Waiting")}


def test_an_engine_that_has_done_nothing_yet_is_taken_for_fast():
    new = engine("new", step=0.0, running=0, free=1000)
    assert surpluses([engine("a"), engine("b"), new]).keys() == {"a", "b"}


@pytest.mark.parametrize(
    "full", [{"free": 100}, {"free": 500, "wanted": 420}, {"waiting": 1}], ids=["KV", "asked for", "queue"]
)
def test_nothing_moves_to_where_there_is_no_room(full):
    assert "a" not in surpluses([engine("a", step=0.05), engine("b", **full)])


def test_what_is_on_its_way_takes_room():
    endpoint = engine(free=300)
    assert has_room(endpoint)
    endpoint.book(Work(1, 16 * 201), 0.0)
    assert not has_room(endpoint)


def test_an_engine_that_tells_nothing_neither_gives_nor_takes():
    assert surpluses([Endpoint("silent"), engine("b", step=0.05)]) == {}
    assert surpluses([Endpoint("silent")]) == {}


def test_those_move_that_cost_least_and_have_got_something_here():
    streams = {
        "long": Progress(5000, 900, 10.0),
        "short": Progress(300, 100, 10.0),
        "new": Progress(200, LEAST_HERE - 1, 10.0),
    }
    assert to_hand_over(streams, Surplus(0.4, "Running"), 10.0, 0.0) == ["short"]
    assert to_hand_over(streams, Surplus(1.0, "Running"), 10.0, 0.0) == ["short", "long"]


def test_those_that_wait_move_whatever_they_have_had():
    streams = {
        "running": Progress(300, 100, 10.0),
        "preempted": Progress(900, 100, 10.0 - 2 * WAITING_SECONDS),
        "queued": Progress(500, 0, 10.0 - 3 * WAITING_SECONDS),
    }
    assert to_hand_over(streams, Surplus(1.0, "Waiting"), 10.0, 0.0) == ["queued", "preempted"]


def test_a_fraction_of_a_stream_is_left_to_chance():
    streams = {number: Progress(100, 100, 0.0) for number in range(10)}
    surplus = Surplus(0.05, "Running")
    assert len(to_hand_over(streams, surplus, 0.0, 0.4)) == 0
    assert len(to_hand_over(streams, surplus, 0.0, 0.6)) == 1


@given(
    st.floats(0.0, 1.0, exclude_min=True),
    st.sampled_from(["Waiting", "Running"]),
    st.lists(st.tuples(st.integers(1, 9999), st.integers(0, 99), st.floats(0.0, 9.0)), max_size=99),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_never_more_move_than_shall_and_each_but_once(share, of, streams, chance):
    there = {number: Progress(*each) for number, each in enumerate(streams)}
    chosen = to_hand_over(there, Surplus(share, of), 9.0, chance)
    assert len(chosen) == len(set(chosen)) <= min(MOST_AT_ONCE, share * len(streams) + 1)


def test_relays_read_what_pickers_write():
    told = {"10.0.0.1:8000": Surplus(0.25, "Waiting"), "[fd00::1]:8000": TERMINATING}
    assert read_surpluses(write_surpluses(told)) == told


def test_what_this_relay_does_not_know_moves_nothing():
    told = b'{"a": [0.5, "Because"], "b": [0.5, "Running"], "c": [2.0, "Running"], "d": [0, "Waiting"]}'
    assert read_surpluses(told) == {"b": Surplus(0.5, "Running")}


@pytest.mark.parametrize("data", [b"", b"[]", b'["10.0.0.1:8000"]', b'{"a": 1}', b'{"a": ["x", "Running"]}'])
def test_what_is_no_answer_of_a_picker_is_refused(data):
    with pytest.raises(ValueError, match=r".+"):
        read_surpluses(data)
