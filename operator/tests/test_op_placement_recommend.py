"""A plan is recommended that does with fewer GPUs what today's engines do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_placement import nodes, service

from headrace_operator.placement.problem import (
    ATTAINMENT,
    SAME_SHARE,
    Group,
    make_plan,
    pack,
    unlike_services,
)
from headrace_operator.placement.recommend import recommend
from headrace_operator.placement.score import FitsNowhereError, Scorer

WORK = 8_000


def own_gpus(*services):
    return make_plan([Group(1, (number,)) for number in range(len(services))])


def test_services_with_little_to_do_share():
    services = [service(rate=0.2), service("code", rate=0.2, since=2.5)]
    found = recommend(services, own_gpus(*services), nodes(), WORK)
    assert found.plan == (Group(1, (0, 1)),)
    assert (found.gpus, found.enough) == (1, True)
    assert [each.attainment for each in found.standings] == [1.0, 1.0]
    assert [each.engines for each in found.today] == [1, 1]
    assert found.kv_tokens == (tuple(Scorer(services, nodes()).kv_tokens(found.plan[0])),)


def test_busy_services_keep_their_gpus():
    services = [service(rate=60.0, requests=600), service("code", rate=60.0, requests=600)]
    found = recommend(services, own_gpus(*services), nodes(), WORK)
    assert (found.gpus, found.enough) == (2, True)


def test_where_nothing_is_enough_all_gpus_are_used():
    services = [service(rate=200.0, requests=600), service("code", rate=200.0, requests=600)]
    today = make_plan([Group(1, (0,)), Group(1, (0,)), Group(1, (1,)), Group(1, (1,))])  # more than there are
    found = recommend(services, today, nodes(), WORK)
    assert (found.gpus, found.enough) == (2, False)


def test_a_service_that_does_badly_today_gets_what_helps_it_and_no_more():
    services = [service(rate=60.0, requests=600), service("code", rate=0.2, since=2.5)]
    found = recommend(services, make_plan([Group(1, (0, 1))]), nodes(2, 4), WORK)
    assert found.today[0].attainment < ATTAINMENT - SAME_SHARE
    assert found.standings[0].attainment >= ATTAINMENT - SAME_SHARE
    assert found.gpus < 8


def test_a_service_that_nobody_asks_has_a_place():
    services = [service(rate=1.0), service("new", requests=0)]
    found = recommend(services, own_gpus(*services), nodes(), WORK)
    assert {member for group in found.plan for member in group.members} == {0, 1}


def test_engines_of_today_that_cannot_be_estimated_say_nothing():
    large = service(model="llama-3-70b", rate=0.1)
    found = recommend([large], make_plan([Group(1, (0,))]), nodes(), WORK)
    assert (found.today, found.plan) == (None, (Group(2, (0,)),))


def test_a_service_that_fits_nowhere_is_named():
    with pytest.raises(FitsNowhereError, match="chat: fits no node"):
        recommend([service(model="llama-3-70b")], (), nodes(gpus=1), WORK)


def test_no_plan_for_services_that_find_no_room_together():
    services = [service(str(number), model="llama-3-70b", rate=0.1) for number in range(3)]
    assert recommend(services, (), nodes(), WORK) is None


@settings(max_examples=8)
@given(
    rates=st.lists(st.floats(0.1, 20.0), min_size=1, max_size=4),
    per_node=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 3),
)
def test_what_is_recommended_can_be_and_is_as_good(rates, per_node, seed):
    services = [service(str(number), rate=rate) for number, rate in enumerate(rates)]
    where = nodes(4 // per_node, per_node)
    found = recommend(services, own_gpus(*services), where, WORK, seed=seed)
    assert pack(found.plan, where) is not None
    assert not unlike_services(found.plan)
    assert {member for group in found.plan for member in group.members} == set(range(len(services)))
    assert found == recommend(services, own_gpus(*services), where, WORK, seed=seed)
    if found.enough:
        for today, then in zip(found.today, found.standings, strict=True):
            assert then.attainment >= min(today.attainment, ATTAINMENT) - SAME_SHARE
    else:
        assert found.gpus <= where.total_gpus
