"""Streams that were handed back ask in turn: who has had least first, and who has waited for too long."""

from hypothesis import given
from hypothesis import strategies as st

from headrace_gateway.pick.line import PATIENCE, Line


def line(**tokens):
    """A line of streams with so many tokens, one a second."""
    made = Line()
    for second, (name, count) in enumerate(tokens.items()):
        made.join(name, count, float(second))
    return made


def test_who_has_had_least_is_first_and_equals_are_as_they_came():
    made = line(long=2000, one=300, other=500, short=70)
    order = []
    while (first := made.first(10.0)) is not None:
        order.append(first)
        made.leave(first)
    assert order == ["short", "one", "other", "long"]


def test_who_has_waited_for_too_long_is_ahead_of_all():
    made = line(long=2000, short=1)
    assert made.first(PATIENCE - 0.1) == "short"
    assert made.first(PATIENCE) == "long"
    made.leave("long")
    assert made.first(PATIENCE) == "short"


def test_how_long_each_waits_is_known():
    assert line(one=5, other=5).waited("other", 4.0) == 3.0


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(0.0, 20.0)), min_size=1, max_size=20))
def test_everyones_turn_comes_while_others_keep_joining(streams):
    made, now = Line(), 0.0
    for number, (tokens, gap) in enumerate(streams):
        made.join(number, tokens, now)
        now += gap
    for late in range(len(streams)):  # who comes later has had nothing
        made.join(f"new {late}", 0, now)
        now += PATIENCE
        assert made.first(now) == late
        made.leave(late)
