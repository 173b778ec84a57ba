"""Whose turn it is, whatever engines say and whenever they say it."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_engine.turns.messages import Kind, Message
from headrace_engine.turns.rules import STARVED, Turns

LEASE, STARVATION = 2.0, 1.0


@pytest.fixture
def turns():
    return Turns(LEASE, STARVATION)


def want(priority, number=1):
    return Message(Kind.WANT, priority=priority, want=number)


def told(sent):
    """Whom it was sent to, its kind and the priority in it."""
    return [(member, message.kind, message.priority) for member, message in sent]


def test_a_free_turn_goes_to_whoever_asks(turns):
    assert told(turns.take_in("a", want(5.0), 0.0)) == [("a", Kind.GRANT, inf)]
    assert turns.holder == "a"


def test_the_holder_hears_of_the_best_that_waits_and_of_none_that_is_worse(turns):
    turns.take_in("a", want(5.0), 0.0)
    assert told(turns.take_in("b", want(7.0), 0.1)) == [("a", Kind.ASK, 7.0)]
    assert told(turns.take_in("c", want(9.0), 0.1)) == []
    assert told(turns.take_in("c", want(3.0), 0.2)) == [("a", Kind.ASK, 3.0)]


def test_the_turn_goes_to_the_least_priority_equals_to_who_waited_longest(turns):
    [(_, grant)] = turns.take_in("a", want(1.0), 0.0)
    for member, priority in (("b", 7.0), ("c", 4.0), ("d", 4.0)):
        turns.take_in(member, want(priority), 0.1)
    sent = turns.take_in("a", Message(Kind.RELEASE, grant.epoch), 0.2)
    assert told(sent) == [("c", Kind.GRANT, 4.0)]
    [(_, grant)] = sent
    sent = turns.take_in("c", Message(Kind.RELEASE, grant.epoch, 6.0, again=True), 0.3)
    assert told(sent) == [("d", Kind.GRANT, 6.0)]


def test_who_has_waited_for_too_long_goes_first_of_all(turns):
    turns.take_in("a", want(1.0), 0.0)
    turns.take_in("b", want(9.0), 0.1)
    turns.take_in("c", want(8.0), 0.2)
    assert told(turns.tick(1.09)) == []
    assert told(turns.tick(1.1)) == [("a", Kind.ASK, STARVED)]
    [(_, grant)] = turns.take_in("a", Message(Kind.RELEASE, 1, 1.0, again=True), 1.15)
    assert (turns.holder, grant.priority) == ("b", 1.0)


def test_a_turn_that_others_wait_for_ends_after_its_lease():
    turns = Turns(LEASE, starvation=10.0)
    turns.take_in("a", want(1.0), 0.0)
    assert told(turns.tick(100.0)) == []  # nobody waits
    turns.take_in("b", want(2.0), 100.0)
    assert told(turns.tick(102.0)) == []
    assert told(turns.tick(102.1)) == [("a", Kind.FENCED, 0.0), ("b", Kind.GRANT, inf)]
    assert turns.fenced == 1


def test_a_holder_that_speaks_keeps_its_turn_but_not_from_one_that_starves():
    turns = Turns(LEASE, starvation=10.0)
    turns.take_in("a", want(1.0), 0.0)
    turns.take_in("b", want(2.0), 0.0)
    for second in range(1, 12):
        turns.take_in("a", Message(Kind.KEEP, 1, 1.0), float(second))
        turns.tick(second + 0.5)
        assert turns.holder == "a"
    turns.take_in("a", Message(Kind.KEEP, 1, 1.0), 12.0)
    turns.tick(12.5)
    assert turns.holder == "b"


def test_one_that_hangs_is_passed_over_until_it_speaks(turns):
    turns.take_in("a", want(1.0), 0.0)
    turns.take_in("b", want(2.0), 0.0)
    turns.tick(2.1)
    assert turns.holder == "b"
    turns.take_in("a", want(0.5, 2), 2.2)  # it speaks, and hangs again: nobody holds for long
    assert told(turns.take_in("b", Message(Kind.RELEASE, 2, 2.0, again=True), 2.3)) == [
        ("a", Kind.GRANT, 2.0)
    ]
    assert told(turns.tick(4.4)) == [("a", Kind.FENCED, 0.0), ("b", Kind.GRANT, inf)]


def test_a_grant_that_crossed_with_its_withdrawal_goes_to_the_next(turns):
    turns.take_in("a", want(1.0), 0.0)
    turns.take_in("b", want(2.0), 0.0)
    assert told(turns.take_in("a", Message(Kind.IDLE), 0.1)) == [("b", Kind.GRANT, inf)]


def test_a_grant_repeats_the_number_of_the_wish(turns):
    turns.take_in("a", want(1.0), 0.0)
    turns.take_in("b", want(2.0, 7), 0.0)
    turns.take_in("b", want(1.5, 7), 0.0)
    [(_, grant)] = turns.take_in("a", Message(Kind.RELEASE, 1), 0.1)
    assert grant.want == 7


def test_a_member_that_is_gone_holds_nothing_and_waits_for_nothing(turns):
    turns.take_in("a", want(1.0), 0.0)
    turns.take_in("b", want(2.0), 0.0)
    turns.take_in("c", want(3.0), 0.0)
    turns.leave("b", 0.1)
    assert told(turns.leave("a", 0.1)) == [("c", Kind.GRANT, inf)]
    assert turns.concerned == {"c"}


def test_what_is_about_an_earlier_turn_changes_nothing(turns):
    turns.take_in("a", want(1.0), 0.0)
    turns.take_in("b", want(2.0), 0.0)
    turns.tick(2.1)
    assert turns.take_in("a", Message(Kind.RELEASE, 1), 2.2) == []
    assert turns.take_in("a", Message(Kind.KEEP, 1, 0.5), 2.2) == []
    assert turns.holder == "b"


MEMBERS = st.integers(0, 3)
PRIORITIES = st.floats(0, 10)
SPOKEN = st.tuples(
    MEMBERS, st.sampled_from(["want", "keep", "release", "again", "idle", "leave"]), PRIORITIES
)
LIVES = st.lists(st.tuples(st.one_of(SPOKEN, st.none()), st.floats(0, 1.5)), max_size=80)


class Engine:
    """What one engine believes, told by what it was sent."""

    def __init__(self):
        self.epoch, self.number, self.waits, self.holds = 0, 0, False, False

    def say(self, what, priority):
        """The message, if a well-behaved engine would send it now; None otherwise."""
        if what == "want" and not self.holds:
            self.number += not self.waits
            self.waits = True
            return want(priority, self.number)
        if what == "keep" and self.holds:
            return Message(Kind.KEEP, self.epoch, priority)
        if what in {"release", "again"} and self.holds:
            self.holds, self.waits = False, what == "again"
            self.number += 1
            return Message(Kind.RELEASE, self.epoch, priority, self.number, self.waits)
        if what == "idle" and self.waits:
            self.waits = False
            return Message(Kind.IDLE)
        return None

    def hear(self, message):
        if message.kind is Kind.GRANT:
            assert self.waits
            assert message.want == self.number
            assert message.epoch > self.epoch
            self.epoch, self.holds, self.waits = message.epoch, True, False
        elif message.kind is Kind.FENCED:
            assert (self.holds, message.epoch) == (True, self.epoch)
            self.holds = False
        else:
            assert (self.holds, message.epoch) == (True, self.epoch)


@settings(deadline=None)
@given(LIVES)
def test_never_two_have_the_turn_and_nobody_waits_while_nobody_has_it(life):
    turns, engines, now = Turns(LEASE, STARVATION), [Engine() for _ in range(4)], 0.0
    for spoken, passed in life:
        now += passed
        sent = []
        if spoken is None:
            sent = turns.tick(now)
        else:
            member, what, priority = spoken
            if what == "leave":
                engines[member] = Engine()
                engines[member].epoch = turns.granted
                sent = turns.leave(member, now)
            elif (message := engines[member].say(what, priority)) is not None:
                sent = turns.take_in(member, message, now)
        for member, message in sent:
            engines[member].hear(message)
        holders = [member for member, engine in enumerate(engines) if engine.holds]
        assert holders == ([] if turns.holder is None else [turns.holder])
        if not holders:
            assert not any(engine.waits for engine in engines)


@settings(deadline=None)
@given(st.lists(PRIORITIES, min_size=2, max_size=6), st.floats(0.01, 0.3))
def test_everybody_has_a_turn_within_its_starvation_and_a_step_of_each_that_starved_before(priorities, step):
    turns, now = Turns(LEASE, STARVATION), 0.0
    number = dict.fromkeys(range(len(priorities)), 1)
    had = dict.fromkeys(number, 0.0)
    for member, priority in enumerate(priorities):
        turns.take_in(member, want(priority), 0.0)
    for _ in range(200):
        now += step
        turns.tick(now)
        holder = turns.holder
        had[holder] = now
        number[holder] += 1
        again = Message(Kind.RELEASE, turns.granted, priorities[holder], number[holder], again=True)
        turns.take_in(holder, again, now)
        assert all(now - last <= STARVATION + step * (len(priorities) + 1) for last in had.values())
