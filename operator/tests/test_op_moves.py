"""Services of a pool move one after another, each when its new place has room."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_operator.decide.moves import Mover, plan_moves
from headrace_operator.decide.places import Place


def own(gpus=1, replicas=1):
    return Place(None, gpus, 90, "9", replicas)


def shared(claim="a", percent=45, gpus=1):
    return Place(claim, gpus, percent, "4", 1)


def mover(name, runs, wanted, **fields):
    return Mover(name, wanted, runs, **{"settled": True, **fields})


def test_two_that_come_to_share_move_one_after_another():
    chat, code = mover("chat", own(), shared()), mover("code", own(), shared())
    moves = plan_moves([chat, code], None)
    assert (moves.free, moves.moving, moves.waiting) == ({"chat"}, ("chat",), ("code",))
    chat = replace(chat, runs=shared(), settled=False)
    moves = plan_moves([chat, code], None)
    assert (moves.free, moves.moving, moves.waiting) == ({"chat"}, ("chat",), ("code",))
    chat = replace(chat, settled=True)
    moves = plan_moves([chat, code], None)
    assert (moves.free, moves.moving, moves.waiting) == ({"chat", "code"}, ("code",), ())


def test_nobody_moves_where_all_are_as_planned():
    moves = plan_moves([mover("chat", own(), own())], None)
    assert (moves.free, moves.moving, moves.waiting) == ({"chat"}, (), ())


def test_a_service_that_is_new_starts_where_it_should_and_waits_for_its_claim():
    assert plan_moves([mover("chat", None, shared())], None).free == {"chat"}
    assert plan_moves([mover("chat", None, None)], None).free == frozenset()


def test_who_leaves_goes_before_who_comes():
    movers = [
        mover("came", own(), shared("a", 60)),
        mover("left", shared("a", 50), own()),
        mover("stays", shared("a", 40), shared("a", 40)),
    ]
    moves = plan_moves(movers, 3)
    assert (moves.moving, moves.waiting) == (("left",), ("came",))


def test_a_claim_that_is_not_there_yet_is_waited_for():
    moves = plan_moves([mover("chat", own(), None)], None)
    assert (moves.free, moves.moving, moves.waiting) == (frozenset(), (), ("chat",))


def test_no_gpu_is_taken_that_the_pool_does_not_have():
    grows = mover("chat", own(), own(gpus=2))
    assert plan_moves([grows, mover("code", own(), own())], 2).waiting == ("chat",)
    assert plan_moves([grows, mover("code", own(), own())], 3).moving == ("chat",)


def test_who_must_be_there_throughout_needs_gpus_beside_its_own():
    chat, code = mover("chat", own(), shared(), drains=False), mover("code", own(), shared())
    assert plan_moves([chat, code], 2).moving == ("code",)
    assert plan_moves([chat], 1).waiting == ("chat",)
    assert plan_moves([chat], 2).moving == ("chat",)
    there = mover("code", shared(), shared())
    assert plan_moves([chat, there], 2).moving == ("chat",)


def test_a_pool_that_has_more_than_it_should_still_moves_who_takes_no_more():
    assert plan_moves([mover("chat", own(replicas=3), own(replicas=2))], 1).moving == ("chat",)


def test_a_move_that_failed_holds_up_nobody():
    failed = mover("chat", own(), own(gpus=2), given_up=True)
    moves = plan_moves([failed, mover("code", own(), shared())], None)
    assert (moves.moving, moves.given_up) == (("code",), ("chat",))


PLACES = st.builds(
    Place,
    st.sampled_from([None, "a", "b"]),
    st.sampled_from([1, 2]),
    st.sampled_from([30, 45, 90]),
    st.just("1"),
    st.just(1),
)


@given(st.lists(st.tuples(PLACES, PLACES, st.booleans()), min_size=1, max_size=5))
@pytest.mark.parametrize("gpus", [None, 4])
def test_moves_end_and_never_overcommit_a_claim_more_than_it_was(gpus, places):
    movers = [
        mover(str(number), runs, wanted, settled=settled)
        for number, (runs, wanted, settled) in enumerate(places)
    ]
    for _ in range(2 * len(movers) + 1):
        moves = plan_moves(movers, gpus)
        assert len(moves.moving) <= 1 or all(each.arrived for each in movers if each.name in moves.moving)
        for each in movers:
            if each.name in moves.free and not each.arrived and each.wanted.claim:
                beside = [m.runs for m in movers if m is not each and m.runs.claim == each.wanted.claim]
                assert sum(place.memory_percent for place in [each.wanted, *beside]) <= 100
        movers = [
            replace(each, runs=each.wanted, settled=each.arrived) if each.name in moves.free else each
            for each in movers
        ]
    assert not plan_moves(movers, gpus).moving
