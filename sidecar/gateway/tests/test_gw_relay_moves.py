"""Streams leave an engine that is being stopped: not at once, not all at once. Some leave slow ones."""

import contextlib
from random import Random

from headrace_gateway.pick.rebalance import (
    LEAST_HERE,
    MOST_AT_ONCE,
    TERMINATING,
    WAITING_SECONDS,
    Progress,
    Surplus,
)
from headrace_gateway.relay.moves import STAY_SECONDS, Moves

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
STOPPED = {A: TERMINATING}


def new_moves():
    return Moves(Random(0))


def somewhere():
    return Progress(tokens=100, here=LEAST_HERE, heard_at=0.0)


def test_only_streams_of_that_engine_move_and_only_after_a_while():
    moves, moved = new_moves(), []
    with moves.on(A, moved.append, somewhere), moves.on(B, moved.append, somewhere):
        moves.note(STOPPED, 100.0)
        moves.note(STOPPED, 100.0 + STAY_SECONDS / 2)
        assert moved == []
        moves.note(STOPPED, 100.0 + STAY_SECONDS)
        assert moved == ["Terminating"]
    moves.note(STOPPED, 200.0)
    assert moved == ["Terminating"]


def test_an_engine_of_which_it_is_no_longer_heard_has_to_be_heard_of_for_a_while_again():
    moves, moved = new_moves(), []
    with moves.on(A, moved.append, somewhere):
        moves.note(STOPPED, 100.0)
        moves.note({}, 100.0 + STAY_SECONDS)
        moves.note(STOPPED, 101.0 + STAY_SECONDS)
        assert moved == []


def test_many_streams_move_one_part_after_the_other_and_who_cannot_comes_last():
    moves, moved = new_moves(), []
    total = 2 * MOST_AT_ONCE + 1
    with contextlib.ExitStack() as streams:

        def stay(number):
            """Register a stream that, when told to move, finds no other engine."""
            stream = streams.enter_context(contextlib.ExitStack())

            def told(_reason):
                moved.append(number)
                stream.close()
                stay(number)

            stream.enter_context(moves.on(A, told, somewhere))

        for number in range(total):
            stay(number)
        for tick in range(4):
            moves.note(STOPPED, 100.0 + tick * STAY_SECONDS)
            assert len(moved) == tick * MOST_AT_ONCE
        assert moved[:total] == list(range(total))


def test_of_a_slow_engine_the_streams_move_that_cost_least():
    moves, moved = new_moves(), []
    progress = {name: Progress(tokens, LEAST_HERE, 0.0) for name, tokens in (("a", 30), ("b", 10), ("c", 20))}
    with contextlib.ExitStack() as streams:
        for name, each in progress.items():
            streams.enter_context(
                moves.on(A, lambda reason, name=name: moved.append((name, reason)), lambda each=each: each)
            )
        streams.enter_context(moves.on(B, moved.append, somewhere))
        moves.note({A: Surplus(2 / 3, "Running")}, 100.0)
    assert moved == [("b", "Running"), ("c", "Running")]


def test_of_an_engine_with_a_queue_only_streams_move_that_hear_nothing():
    moves, moved = new_moves(), []
    with moves.on(A, moved.append, lambda: Progress(tokens=100, here=0, heard_at=100.0)):
        moves.note({A: Surplus(1.0, "Waiting")}, 100.0 + WAITING_SECONDS)
        assert moved == []
        moves.note({A: Surplus(1.0, "Waiting")}, 100.1 + WAITING_SECONDS)
    assert moved == ["Waiting"]
    moves.note({A: Surplus(1.0, "Waiting")}, 200.0)
    assert moved == ["Waiting"]
