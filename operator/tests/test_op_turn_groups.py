"""A service takes turns in one group, that of the oldest pool which names it."""

import pytest
from op_golden import SETTINGS
from op_planning import placed, planned_pool
from op_pools import TOKEN, pool, pool_body

from headrace_engine.contracts.turn_group import TurnGroup
from headrace_operator.api import Key, parse_pool, parse_pools
from headrace_operator.decide.turn_groups import (
    check_members_free,
    known_token,
    membership,
    pool_of,
    turn_group,
)
from headrace_operator.desired.turn_server import turn_server_objects
from headrace_operator.errors import RefusedError, SpecInvalidError

CHAT = Key("llm", "chat")
OLD, YOUNG = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def live_objects(of, address="10.0.0.7"):
    """What the API server has of a pool's objects."""
    (group,) = of.groups
    found = {each["kind"]: each for each in turn_server_objects(of, group, TOKEN, SETTINGS)}
    found["Service"]["spec"]["clusterIP"] = address
    return found


def test_the_oldest_pool_that_names_a_service_has_it():
    raw = [
        pool_body("a", YOUNG, left=["chat"]),
        pool_body("b", OLD, right=["chat", "code"]),
        pool_body("c", OLD, other=["summary"]),
    ]
    pools = parse_pools(raw)
    oldest = parse_pool(raw[1])
    assert membership(CHAT, pools) == (oldest, oldest.groups[0])
    assert membership(Key("llm", "nobody"), pools) is None
    with pytest.raises(RefusedError, match="chat is in group right of GPUPool b") as refused:
        check_members_free(pools[-1], pools)
    assert refused.value.reason == "MemberTaken"
    check_members_free(pools[0], pools)


def test_a_service_that_an_older_pool_places_is_taken_even_if_it_is_in_no_group():
    auto = planned_pool("chat", "code", mode="Auto")
    auto["metadata"]["creationTimestamp"] = OLD
    young = pool("young", YOUNG, a=["chat"])
    pools = [parse_pool(auto), young]
    assert pool_of(CHAT, pools) == pools[0]
    assert membership(CHAT, pools) is None
    with pytest.raises(RefusedError, match=r"spec.groups: chat is in GPUPool shared, which is older"):
        check_members_free(young, pools)
    with pytest.raises(RefusedError, match=r"spec.placement.services: chat is in group a of GPUPool young"):
        check_members_free(pools[0], [young, pools[0]])


def test_services_that_are_put_into_a_group_are_its_members_while_the_spec_has_them_placed():
    auto = planned_pool("chat", "code", mode="Auto")
    auto["status"] = {"placement": placed("chat", "code", "gone")}
    found = membership(CHAT, [parse_pool(auto)])
    assert (found.group.name, found.group.members) == ("auto-1", ("chat", "code"))
    auto["spec"]["placement"]["mode"] = "Recommend"
    assert membership(CHAT, [parse_pool(auto)]) is None
    auto["spec"]["placement"]["mode"] = "Auto"
    auto["status"]["placement"]["services"] = "of another release"
    assert membership(CHAT, [parse_pool(auto)]) is None


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"a": ["chat"]}, "placement.services: mode Auto makes their groups"),
        ({"auto-1": ["x"]}, "groups: names that begin with auto- are those that mode Auto makes"),
    ],
)
def test_groups_that_mode_auto_would_make_are_refused(groups, words):
    raw = planned_pool("chat")
    raw["spec"]["groups"] = pool_body(**groups)["spec"]["groups"]
    assert parse_pool(raw).services
    raw["spec"]["placement"]["mode"] = "Auto"
    with pytest.raises(SpecInvalidError, match=words):
        parse_pool(raw)


def test_pools_that_are_being_deleted_or_are_not_valid_have_nobody():
    leaving = pool_body(a=["chat"])
    leaving["metadata"]["deletionTimestamp"] = YOUNG
    assert parse_pools([leaving, pool_body("wrong", a=["chat"], b=["chat"])]) == []


def test_a_member_of_two_groups_is_refused_with_field_and_fix():
    with pytest.raises(SpecInvalidError, match="spec: groups: a service is in one group only"):
        parse_pool(pool_body(a=["chat"], b=["chat"]))


def test_engines_are_told_of_their_turn_server_once_it_has_an_address_and_is_their_pools():
    of = pool(a=["chat"])
    place = membership(CHAT, [of])
    objects = live_objects(of)
    told = turn_group(place, lambda _key, kind, _name: objects.get(kind))
    assert told == TurnGroup("10.0.0.7", 9500, TOKEN, "FairShare")
    for missing in ("Service", "ConfigMap"):
        others = {kind: body for kind, body in objects.items() if kind != missing}
        assert turn_group(place, lambda _key, kind, _name, others=others: others.get(kind)) is None
    strange = live_objects(
        parse_pool({**pool_body(a=["chat"]), "metadata": {**pool_body()["metadata"], "uid": "x"}})
    )
    assert turn_group(place, lambda _key, kind, _name: strange.get(kind)) is None
    unready = live_objects(of, address="")
    assert turn_group(place, lambda _key, kind, _name: unready.get(kind)) is None


def test_engines_are_told_in_which_order_they_take_turns():
    raw = pool_body(a=["chat"])
    raw["spec"]["groups"][0]["turnOrder"] = "DoublingBudget"
    of = parse_pool(raw)
    objects = live_objects(of)
    told = turn_group(membership(CHAT, [of]), lambda _key, kind, _name: objects.get(kind))
    assert told.order == "DoublingBudget"


@pytest.mark.parametrize("token", [None, "", "5e", "no digits at all, but long enough to be one"])
def test_what_cannot_be_a_token_is_none(token):
    assert known_token({"data": {"token": token}}) == known_token(None) == ""
