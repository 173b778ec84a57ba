"""Streams leave an engine that is being stopped: not at once, not all at once, and none for a rumour."""

import contextlib

from headrace_gateway.relay.moves import MOST_AT_ONCE, STAY_SECONDS, Moves

A, B = "10.0.0.1:8000", "10.0.0.2:8000"


def test_only_streams_of_that_engine_move_and_only_after_a_while():
    moves, moved = Moves(), []
    with moves.on(A, lambda: moved.append(A)), moves.on(B, lambda: moved.append(B)):
        moves.note([A], 100.0)
        moves.note([A], 100.0 + STAY_SECONDS / 2)
        assert moved == []
        moves.note([A], 100.0 + STAY_SECONDS)
        assert moved == [A]
    moves.note([A], 200.0)
    assert moved == [A]


def test_an_engine_of_which_it_is_no_longer_heard_has_to_be_heard_of_for_a_while_again():
    moves, moved = Moves(), []
    with moves.on(A, lambda: moved.append(A)):
        moves.note([A], 100.0)
        moves.note([], 100.0 + STAY_SECONDS)
        moves.note([A], 101.0 + STAY_SECONDS)
        assert moved == []


def test_many_streams_move_one_part_after_the_other_and_who_cannot_comes_last():
    moves, moved = Moves(), []
    total = 2 * MOST_AT_ONCE + 1
    with contextlib.ExitStack() as streams:

        def stay(number):
            """Register a stream that, when told to move, finds no other engine."""
            stream = streams.enter_context(contextlib.ExitStack())

            def told():
                moved.append(number)
                stream.close()
                stay(number)

            stream.enter_context(moves.on(A, told))

        for number in range(total):
            stay(number)
        for tick in range(4):
            moves.note([A], 100.0 + tick * STAY_SECONDS)
            assert len(moved) == tick * MOST_AT_ONCE
        assert moved[:total] == list(range(total))
