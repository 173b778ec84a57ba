"""Services of a pool move one after another, each when its new place has room."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_operator.decide.moves import Mover, plan_moves
from headrace_operator.decide.places import WHOLE, Place, memory_taken


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
    chat, code = mover("chat", own(), shared(), max_unavailable=0), mover("code", own(), shared())
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


def test_new_engines_start_beside_the_old_ones_where_there_is_room_for_both():
    chat, code = mover("chat", own(), shared()), mover("code", own(), shared())
    assert plan_moves([chat, code], 2).surging == frozenset()
    assert plan_moves([chat, code], 3).surging == {"chat"}
    chat = replace(chat, runs=shared(), settled=False, surges=True)
    assert plan_moves([chat, code], 3).surging == {"chat"}
    chat = replace(chat, settled=True)
    assert plan_moves([chat, code], 2).surging == {"code"}


def test_two_sizes_of_a_service_have_room_on_one_gpu_only_if_both_fit():
    def grows(percent):
        return mover("chat", shared(percent=percent), shared(percent=50))

    assert plan_moves([grows(40)], None).surging == {"chat"}
    moves = plan_moves([grows(51)], None)
    assert (moves.moving, moves.surging) == (("chat",), frozenset())


def test_several_engines_are_replaced_one_after_another():
    grows = mover("chat", own(gpus=1, replicas=3), own(gpus=2, replicas=3), max_unavailable=0)
    assert plan_moves([grows], 6).waiting == ("chat",), "three new ones beside the last old one"
    assert plan_moves([grows], 7).surging == {"chat"}
    shrinks = mover("chat", own(gpus=2, replicas=3), own(gpus=1, replicas=3), max_unavailable=0)
    assert plan_moves([shrinks], 6).waiting == ("chat",), "three old ones beside the first new one"
    assert plan_moves([shrinks], 7).surging == {"chat"}


def change_of_places(**fields):
    """Two services on two full GPUs, each where the other should be."""
    chat = mover("chat", shared("a", 90), shared("b", 60), **fields)
    return chat, mover("code", shared("b", 60), shared("a", 90), **fields)


def test_of_two_that_change_places_one_has_no_engines_until_the_other_has_moved():
    chat, code = change_of_places()
    moves = plan_moves([chat, code], 2)
    assert (moves.moving, moves.down, moves.waiting) == ((), {"chat"}, ("chat", "code"))
    chat = replace(chat, runs=chat.runs._replace(replicas=0), settled=False)
    moves = plan_moves([chat, code], 2)
    assert (moves.moving, moves.down) == ((), {"chat"}), "its engines still end"
    chat = replace(chat, settled=True)
    moves = plan_moves([chat, code], 2)
    assert (moves.moving, moves.down, moves.waiting) == (("code",), {"chat"}, ("chat",))
    code = replace(code, runs=code.wanted, settled=False)
    moves = plan_moves([chat, code], 2)
    assert (moves.moving, moves.down) == (("code",), {"chat"})
    moves = plan_moves([chat, replace(code, settled=True)], 2)
    assert (moves.moving, moves.down) == (("chat",), frozenset())


def test_who_was_ended_for_a_move_that_failed_runs_where_it_was():
    chat, code = change_of_places()
    chat = replace(chat, runs=chat.runs._replace(replicas=0))
    moves = plan_moves([chat, replace(code, given_up=True)], 2)
    assert (moves.moving, moves.down, moves.waiting) == ((), frozenset(), ("chat",))


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [({"max_unavailable": 0}, 2), ({}, 1)],
    ids=["who must be there", "no room for all in the end"],
)
def test_nobody_is_ended_in_vain(fields, gpus):
    moves = plan_moves(change_of_places(**fields), gpus)
    assert (moves.moving, moves.down, moves.waiting) == ((), frozenset(), ("chat", "code"))


PLACES = st.builds(
    Place,
    st.sampled_from([None, "a", "b"]),
    st.sampled_from([1, 2]),
    st.sampled_from([30, 45, 90]),
    st.just("1"),
    st.just(1),
)


MOVERS = st.tuples(PLACES, PLACES, st.booleans(), st.integers(0, 1), st.booleans())


@given(st.lists(MOVERS, min_size=1, max_size=5))
@pytest.mark.parametrize("gpus", [None, 4])
def test_moves_end_with_everybody_up_and_never_overcommit_a_claim(gpus, drawn):
    movers = [
        mover(str(number), runs, wanted, settled=settled, max_unavailable=unavailable)
        for number, (runs, wanted, settled, unavailable, _) in enumerate(drawn)
    ]
    for _ in range(4 * len(movers) + 1):
        moves = plan_moves(movers, gpus)
        told = [each for each in movers if each.name in moves.free and not (each.arrived or each.given_up)]
        assert len(told) <= 1
        for each in told:
            assert each.name in moves.moving
            there = [m.runs for m in movers if m is not each or m.name in moves.surging]
            beside = [place for place in there if place.claim == each.wanted.claim]
            assert each.wanted.claim is None or memory_taken([each.wanted, *beside]) <= WHOLE
            assert each.name in moves.surging or each.max_unavailable or each.is_down
        assert all(each.max_unavailable for each in movers if each.name in moves.down)
        movers = [follow(each, moves, drawn[int(each.name)]) for each in movers]
    last = plan_moves(movers, gpus)
    assert not last.moving
    assert not last.down
    assert all(each.runs.replicas for each in movers)


def follow(each, moves, drawn):
    """What becomes of a service that is told; a move that fails is over at the next look."""
    before, *_, fails = drawn
    if each.arrived and not each.settled and fails and before != each.wanted:
        return replace(each, runs=before, given_up=True)
    if each.name in moves.free and not each.given_up:
        settled = each.arrived
        return replace(each, runs=each.wanted, settled=settled, surges=each.name in moves.surging)
    runs = moves.place_meanwhile(each.name, each.runs, each.wanted.replicas)
    return replace(each, runs=runs, settled=not runs.replicas)
