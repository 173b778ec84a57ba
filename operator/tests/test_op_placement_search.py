"""The search: never worse than SeaLLM's own, the same for the same seed, and in time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_placement import SIZES, nodes, service

from headrace_operator.placement.problem import Group, pack
from headrace_operator.placement.score import Scorer
from headrace_operator.placement.search import Found, search


def never():
    return False


def after(times):
    """Time is out when it has been asked so often."""
    left = iter(range(times))
    return lambda: next(left, None) is None


def find(services, where, out_of_time=never, **options):
    return search(Scorer(services, where), out_of_time, **options)


def test_services_that_are_seldom_asked_share_all_gpus_and_busy_ones_have_their_own():
    seldom = [service("chat", rate=0.1, requests=10), service("code", rate=0.1, requests=10, since=5.0)]
    assert find(seldom, nodes()).plan == (Group(2, (0, 1)),)
    busy = [service("chat", rate=30.0, requests=300), service("code", rate=30.0, requests=300)]
    assert find(busy, nodes()).plan == (Group(1, (0,)), Group(1, (1,)))


def test_it_is_the_same_for_the_same_seed():
    services = [service(f"{number}", rate=2.0 + number, requests=30) for number in range(3)]
    assert find(services, nodes(gpus=4), seed=3) == find(services, nodes(gpus=4), seed=3)


@pytest.mark.parametrize("times", [0, 1, 5, 50])
def test_it_keeps_the_best_that_it_has_when_time_is_out(times):
    services = [service("chat"), service("code")]
    found = find(services, nodes(), after(times))
    assert found.score >= find(services, nodes()).score
    assert (found == Found()) is (times == 0)


def test_a_service_that_nobody_asks_is_placed_too():
    found = find([service("chat", rate=20.0, requests=200), service("idle", requests=0)], nodes(gpus=1))
    assert found.plan == (Group(1, (0, 1)),)


def test_a_service_without_room_is_left_out():
    found = find([service(model="llama-3-70b"), service(model="llama-3-70b")], nodes())
    assert (found.score.unplaced, len(found.plan)) == (1, 1)


def test_there_is_room_for_a_large_service_if_the_others_give_way():
    services = [service("chat"), service("code"), service("large", model="llama-3-70b")]
    found = find(services, nodes(gpus=4))
    assert found.score.unplaced == 0


@settings(deadline=None, max_examples=15)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(SIZES)), st.floats(0.2, 20), st.integers(10, 300)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([(1, 2), (1, 4), (2, 2)]),
    st.sampled_from([1, 2]),
)
def test_a_plan_can_be_and_is_no_worse_than_seallms(asked, where, most_members):
    services = [
        service(str(number), model=model, rate=rate, requests=20, output=output)
        for number, (model, rate, output) in enumerate(asked)
    ]
    scorer = Scorer(services, nodes(*where))
    greedy = search(scorer, never, most_members=most_members, improve=False)
    found = search(scorer, after(300), most_members=most_members)
    assert found.score <= greedy.score
    if found.plan:
        assert pack(found.plan, scorer.nodes) is not None
        placed = {member for group in found.plan for member in group.members}
        assert len(services) - len(placed) == found.score.unplaced
        assert scorer.score(found.plan) == found.score
