"""Plans are in one order, and packed onto nodes."""

import pytest
from op_placement import nodes, service

from headrace_operator.placement.problem import (
    Group,
    Nodes,
    divide_gpus,
    make_plan,
    pack,
    sizes_up_to,
    unlike_services,
)


def test_one_set_of_groups_is_one_plan():
    groups = [Group(1, (2,)), Group(2, (0, 1)), Group(1, (0,))]
    assert make_plan(groups) == make_plan(groups[::-1]) == (Group(2, (0, 1)), Group(1, (0,)), Group(1, (2,)))


def test_groups_get_nodes_that_have_room_for_them():
    plan = make_plan([Group(1, ()), Group(2, ()), Group(4, ()), Group(1, ())])
    assert pack(plan, nodes(count=2, gpus=4)) == [0, 1, 1, 1]
    assert pack(plan, nodes(count=1, gpus=4)) is None
    assert pack(plan, nodes(count=4, gpus=2)) is None
    assert pack(plan, Nodes((1, 4, 3), 1, 1)) == [1, 2, 0, 2]


@pytest.mark.parametrize(
    ("groups", "unlike"),
    [
        ([Group(1, (0,)), Group(1, (0,)), Group(2, (1, 2))], set()),
        ([Group(1, (0,)), Group(2, (0,))], {0}),
        ([Group(1, (0, 1)), Group(1, (0,))], {0}),
        ([Group(1, (0, 1)), Group(1, (0, 1)), Group(1, (2,))], {0, 1}),
    ],
)
def test_unlike_are_engines_of_two_sizes_or_beside_others_and_elsewhere(groups, unlike):
    assert unlike_services(make_plan(groups)) == unlike


@pytest.mark.parametrize(("most", "sizes"), [(1, [1]), (6, [1, 2, 4]), (8, [1, 2, 4, 8])])
def test_sizes_are_powers_of_two(most, sizes):
    assert sizes_up_to(most) == sizes


def test_long_answers_hold_kv_for_longer():
    assert service(output=200).kv_demand > 2 * service(output=100).kv_demand


@pytest.mark.parametrize(("total", "of_nodes"), [(8, (8,)), (19, (8, 8, 3)), (3, (3,))])
def test_gpus_are_divided_among_full_nodes_and_what_is_left(total, of_nodes):
    assert divide_gpus(total, 8) == of_nodes
