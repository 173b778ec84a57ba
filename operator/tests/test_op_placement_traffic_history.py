"""What engines told is kept for an hour, whatever they say of themselves, and whether they still run."""

import pytest
from op_planning import NOON, window

from headrace_operator.placement.traffic_history import TrafficHistory

HOUR = 3600


def test_engines_of_a_service_are_added_up_and_what_is_told_anew_replaces():
    history = TrafficHistory()
    history.add("chat", "a", [window(0, {0: 1}), window(1, {0: 1})], NOON + 30)
    history.add("chat", "b", [window(1, {0: 5})], NOON + 30)
    history.add("chat", "a", [window(1, {0: 3})], NOON + 40)
    history.add("code", "c", [window(1, {0: 9})], NOON + 40)
    assert [each.requests for each in history.last_hour("chat", NOON + 40)] == [1, 8]


def test_what_an_engine_told_before_it_ended_counts_for_an_hour():
    history = TrafficHistory()
    history.add("chat", "a", [window(0)], NOON + 20)
    history.forget_ended("chat", ["b"], NOON + HOUR)
    assert len(history.last_hour("chat", NOON + HOUR)) == 1
    assert history.last_hour("chat", NOON + HOUR + 1) == ()
    history.forget_ended("chat", ["b"], NOON + HOUR + 1)
    assert history.last_hour("chat", NOON + HOUR) == ()


def test_an_engine_that_was_asked_nothing_has_told():
    history = TrafficHistory()
    history.add("chat", "a", [], NOON)
    assert history.has_told("chat")
    assert not history.has_told("code")


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (window(4), "later than the clock of any node"),
        (window(-181), "older than an hour"),
        (window(0, {0: 60_000}), "more requests than an engine answers"),
        (window(0, prompt=20_000_000), "longer than any prompt"),
        (window(0, {1: 0}), "no request"),
    ],
)
def test_what_cannot_be_is_passed_over(told, why):
    history = TrafficHistory()
    history.add("chat", "a", [told, window(0, {7: 2})], NOON)
    assert [each.requests for each in history.last_hour("chat", NOON)] == [2], why
