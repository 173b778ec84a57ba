"""Plans to begin with: SeaLLM's, and the largest services first."""

from collections import Counter

from op_placement import nodes, service

from headrace_operator.placement.greedy import allocate, place_largest_first
from headrace_operator.placement.problem import Group
from headrace_operator.placement.score import Scorer


def plans(services, where, size, most_members=2):
    return list(allocate(Scorer(services, where), size, most_members, lambda: False))


def engines(plan):
    return Counter(member for group in plan for member in group.members)


def test_each_plan_has_one_engine_more_until_nothing_fits():
    found = plans([service(), service("code")], nodes(), size=1)
    assert [sum(engines(plan).values()) for plan in found] == [1, 2, 3, 4]
    assert found[-1] == (Group(1, (0, 1)), Group(1, (0, 1)))


def test_who_is_served_least_comes_first_and_gets_the_group_with_the_fewest_requests():
    busy, idle = service("busy", rate=20.0, requests=200), service("idle", requests=20)
    found = plans([idle, busy], nodes(), size=1)
    assert found[:2] == [(Group(1, ()), Group(1, (1,))), (Group(1, (0,)), Group(1, (1,)))]


def test_small_groups_are_merged_for_a_service_that_is_too_large_for_them():
    large = service("large", model="llama-3-70b", requests=20)
    found = plans([service(requests=60), large], nodes(gpus=4), size=1)
    assert found[1] == (Group(2, (1,)), Group(1, ()), Group(1, (0,)))


def test_no_group_has_more_members_than_may_share():
    services = [service(f"service-{number}") for number in range(3)]
    assert all(
        len(group.members) == 1 for plan in plans(services, nodes(), 1, 1) for group in plan if group.members
    )
    assert engines(plans(services, nodes(), 1, 1)[-1]).total() == 2


def test_it_ends_when_time_is_out():
    times = iter([False, False, True])
    found = list(allocate(Scorer([service(), service("code")], nodes()), 1, 2, lambda: next(times)))
    assert len(found) == 2


def test_the_largest_are_placed_first_and_small_ones_share_what_is_left():
    services = [service("chat"), service("code"), service("large", model="llama-3-70b", rate=9.0)]
    plan = place_largest_first(Scorer(services, nodes(count=1, gpus=3)), 2)
    assert plan == (Group(2, (2,)), Group(1, (0, 1)))


def test_gpus_that_nothing_needs_are_left_as_groups_without_members():
    assert place_largest_first(Scorer([service()], nodes(gpus=3)), 2) == (
        Group(1, ()),
        Group(1, ()),
        Group(1, (0,)),
    )
