"""Plans near another: all can be, and each differs by one change."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from op_placement import nodes, service

from headrace_operator.placement.local_search import neighbours
from headrace_operator.placement.problem import Group, make_plan, pack
from headrace_operator.placement.score import Scorer

MODELS = ("llama-3-8b", "mistral-nemo-12b", "llama-3-70b")
SCORER = Scorer([service(model, model=model, requests=2) for model in MODELS], nodes(count=2, gpus=4))
START = make_plan([Group(4, (2,)), Group(2, (0, 1)), Group(1, (0,)), Group(1, ())])


def near(plan, most_members=2, scorer=SCORER):
    return set(neighbours(plan, scorer, most_members, Random(0)))


def test_every_kind_of_change_is_tried():
    found = near(START)
    rest = (Group(4, (2,)), Group(2, (0, 1)))
    assert make_plan([*rest, Group(1, ()), Group(1, ())]) in found  # one engine less
    assert make_plan([*rest, Group(1, (0,)), Group(1, (1,))]) in found  # one more
    assert make_plan([*rest, Group(1, (1,)), Group(1, (0,))]) in found
    assert make_plan([*rest, Group(2, (0,))]) in found  # two groups merged
    assert make_plan([Group(4, (2,)), Group(2, (0,)), Group(1, (0,)), Group(1, (1,))]) in found  # elsewhere
    halves = [Group(1, (0,)), Group(1, (1,)), *START[2:]]
    assert make_plan([Group(4, (2,)), *halves]) in found  # one group halved
    assert make_plan([Group(2, (2,)), Group(2, (2,)), *START[1:]]) in found
    swapped = near(make_plan([Group(2, (2,)), Group(2, (0,)), Group(1, (1,))]))
    assert make_plan([Group(2, (2,)), Group(2, (1,)), Group(1, (0,))]) in swapped


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**20), st.integers(1, 3))
def test_whatever_is_tried_can_be(seed, most_members):
    random = Random(seed)
    plan = START if most_members > 1 else make_plan([Group(4, (2,)), Group(2, (1,)), Group(1, (0,))])
    for _ in range(8):
        for other in neighbours(plan, SCORER, most_members, random):
            assert other != plan
            assert {member for group in other for member in group.members} == {0, 1, 2}
            assert all(len(group.members) <= most_members for group in other)
            assert all(map(SCORER.fits, other))
            assert pack(other, SCORER.nodes) is not None
        plan = next(neighbours(plan, SCORER, most_members, random))
