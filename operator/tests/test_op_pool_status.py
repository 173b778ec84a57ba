"""A pool's conditions say whether its groups take turns, and what to do where one does not."""

import pytest
from op_planning import placed, planned_pool
from op_pools import pool, pool_body

from headrace_operator.api import Reason, parse_pool
from headrace_operator.api.placement import PlacementStatus, PlanStatus
from headrace_operator.decide.moves import NO_MOVES, Moves
from headrace_operator.decide.observation import observe
from headrace_operator.decide.pool_status import build_pool_status
from headrace_operator.errors import ApiError, RefusedError, SpecInvalidError
from headrace_operator.planning.question import Answer

NOW = "2026-11-01T00:00:00Z"
BODY = pool_body(a=["chat", "code"], b=["summary"])
POOL = pool(a=["chat", "code"], b=["summary"])
ALL = {"chat", "code", "summary"}


def server(group, available=1):
    return {
        "kind": "Deployment",
        "metadata": {"name": f"shared-{group}-turns"},
        "status": {"availableReplicas": available},
    }


def build(body, of, *servers, services=ALL, problem=None, answer=None, moves=NO_MOVES, now=NOW):
    return build_pool_status(
        body, of, observe(servers, (), {}), services, problem=problem, answer=answer, moves=moves, now=now
    )


def told(*servers, services=ALL, problem=None, body=BODY, of=POOL):
    status = build(body, of, *servers, services=services, problem=problem)
    return {each.type: (each.status, each.reason, each.message) for each in status.conditions}


def test_a_pool_is_ready_when_each_group_has_its_server():
    conditions = told(server("a"), server("b"))
    assert conditions["Accepted"][:2] == ("True", "Valid")
    assert conditions["Ready"] == ("True", "AllGroupsReady", "every group takes turns")


def test_a_server_that_is_not_there_is_named():
    status, reason, message = told(server("a"), server("b", available=0))["Ready"]
    assert (status, reason) == ("False", "TurnServerNotReady")
    assert "no turn server is ready for b" in message


def test_members_that_do_not_exist_are_named_while_the_others_take_turns():
    status, reason, message = told(server("a"), server("b"), services={"chat"})["Ready"]
    assert (status, reason) == ("False", "MemberNotFound")
    assert "group a: no LLMService code" in message
    assert "group b: no LLMService summary" in message


def test_a_refused_pool_says_why_and_a_running_one_stays_ready():
    refused = RefusedError("MemberTaken", "spec.groups: chat is taken")
    conditions = told(server("a"), server("b"), problem=refused)
    assert conditions["Accepted"] == (
        "False",
        "MemberTaken",
        "spec.groups: chat is taken. Groups stay as they are",
    )
    assert conditions["Ready"][0] == "True"
    assert conditions["Stalled"] == ("True", "MemberTaken", "spec.groups: chat is taken")
    wrong = told(problem=SpecInvalidError("spec: wrong"), of=None)
    assert wrong["Accepted"][:2] == ("False", "InvalidSpec")
    assert wrong["Ready"][:2] == ("False", "NotAccepted")


def test_trouble_with_the_api_server_is_told():
    conditions = told(server("a"), server("b"), problem=ApiError(500, "etcd is full"))
    assert conditions["Ready"] == ("False", "ReconcileError", "etcd is full")
    assert conditions["Accepted"][0] == "True"
    assert conditions["Stalled"][0] == "False"


def test_the_transition_time_moves_only_with_the_status():
    first = build(BODY, POOL, now="2026-01-01T00:00:00Z")
    body = {**BODY, "status": first.as_body()}
    later = build(body, POOL, server("a"), server("b"))
    times = {each.type: each.last_transition_time for each in later.conditions}
    before = "2026-01-01T00:00:00Z"
    assert times == {"Accepted": before, "Ready": NOW, "Placed": before, "Stalled": before}


def claim(group, device="", leaving=False):
    results = [{"pool": "node-a", "device": device}]
    return {
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"shared-{group}-gpu-1",
            "labels": {"headrace.dev/gpu-pool-group": group},
            **({"deletionTimestamp": NOW} if leaving else {}),
        },
        "status": {"allocation": {"devices": {"results": results}}} if device else {},
    }


def test_a_pool_says_which_devices_its_groups_share():
    placed = told(claim("a", "gpu-0"), claim("b", "gpu-1"))["Placed"]
    assert placed == ("True", "DevicesShared", "group a: on node-a/gpu-0; group b: on node-a/gpu-1")


def test_a_group_that_is_not_placed_is_named_with_the_reason():
    status, reason, message = told(claim("a", "gpu-0"), claim("b"))["Placed"]
    assert (status, reason) == ("False", "DevicesNotAllocated")
    assert message.startswith("group b: no node has its devices yet")
    status, reason, message = told(claim("a", "gpu-0"))["Placed"]
    assert (status, reason) == ("False", "NoClaim")
    assert "group a" not in message
    status, reason, message = told(claim("a", "gpu-0", leaving=True), claim("b", "gpu-1"))["Placed"]
    assert (status, reason) == ("False", "ClaimDeleted")
    assert "ResourceClaim shared-a-gpu-1 was deleted" in message


PLANNED = planned_pool("chat", "code")
MADE = Answer(Reason.PLAN_MADE, "1 GPUs, today 2", PlanStatus(time=NOW, gpus=1))


def planned(answer, *, services=ALL, status=None, spec=None, moves=NO_MOVES):
    body = {**PLANNED, "spec": spec or PLANNED["spec"], "status": status or {}}
    return build_pool_status(
        body,
        parse_pool(body),
        observe([], (), {}),
        services,
        problem=None,
        answer=answer,
        moves=moves,
        now=NOW,
    )


def condition(status, kind):
    [found] = [each for each in status.conditions if each.type == kind]
    return found.status, found.reason, found.message


def test_a_pool_that_only_has_a_plan_made_is_ready_and_places_nothing():
    status = planned(None)
    assert condition(status, "Ready") == ("True", "AllGroupsReady", "there are no groups")
    assert [each.type for each in status.conditions] == ["Accepted", "Ready", "Planned", "Stalled"]
    assert condition(status, "Planned")[:2] == ("Unknown", "Planning")
    assert status.plan is None


def test_a_plan_is_told_and_a_pool_that_asks_for_none_has_none():
    status = planned(MADE)
    assert condition(status, "Planned") == ("True", "PlanMade", "1 GPUs, today 2")
    assert status.plan == MADE.plan
    groups = {"groups": [{"name": "a", "members": ["chat"]}]}
    without = planned(None, status=status.as_body(), spec=groups)
    assert without.plan is None
    assert "Planned" not in {each.type for each in without.conditions}


def test_the_last_plan_stays_while_no_newer_one_can_be_made():
    last = planned(MADE).as_body()
    failed = planned(Answer(Reason.NO_TRAFFIC, "nothing was asked"), status=last)
    assert condition(failed, "Planned") == ("False", "NoTraffic", "nothing was asked")
    assert failed.plan == MADE.plan


def test_an_operator_that_starts_goes_by_what_was_told_before():
    last = planned(MADE).as_body()
    assert planned(None, status=last).as_body() == last
    assert planned(None, status=last | {"plan": {"made": "otherwise"}}).plan is None
    last["conditions"][2]["observedGeneration"] = 0
    assert condition(planned(None, status=last), "Planned")[:2] == ("Unknown", "Planning")


def test_services_of_a_plan_that_do_not_exist_are_named():
    status = planned(MADE, services={"chat"})
    assert condition(status, "Planned")[:2] == ("False", "MemberNotFound")
    assert "no LLMService code in namespace llm; a plan is made without" in condition(status, "Planned")[2]
    assert condition(planned(None, status=status.as_body()), "Planned")[:2] == ("Unknown", "Planning")
    assert status.plan == MADE.plan


AUTO = planned_pool("chat", "code", mode="Auto")["spec"]
PLACED = PlacementStatus.model_validate(placed("chat", "code"))


@pytest.mark.parametrize(
    ("moves", "reason", "words"),
    [
        (NO_MOVES, "NothingToMove", "as status.placement says"),
        (
            Moves(frozenset(), moving=("chat",), waiting=("code",)),
            "Moving",
            "chat to be ready, old engines end first; after that code",
        ),
        (
            Moves(frozenset(), moving=("chat",), surging=frozenset({"chat"})),
            "Moving",
            "chat to be ready, new engines start beside the old ones",
        ),
        (
            Moves(frozenset(), waiting=("chat", "code"), down=frozenset({"code"})),
            "Moving",
            "code without engines until another has moved; after that chat",
        ),
        (Moves(frozenset(), waiting=("code",)), "MoveBlocked", "code: no room yet on the devices"),
        (Moves(frozenset(), given_up=("code",)), "MoveFailed", "code: engines did not start"),
    ],
)
def test_a_pool_that_places_services_says_how_far_it_is(moves, reason, words):
    status = planned(None, status={"placement": PLACED.as_body()}, spec=AUTO, moves=moves)
    assert status.placement == PLACED
    holds, told_reason, message = condition(status, "AsPlanned")
    assert (holds, told_reason) == ("True" if reason == "NothingToMove" else "False", reason)
    assert words in message


def test_a_pool_that_places_services_without_a_plan_worth_it_leaves_them():
    status = planned(MADE, spec=AUTO)
    assert (status.placement, condition(status, "AsPlanned")[:2]) == (None, ("True", "NothingToMove"))


def test_another_plan_is_taken_up_once_nothing_moves_and_by_a_pool_that_is_valid_only():
    better = MADE.plan.model_copy(update={"gpus_today": 2})
    answer = Answer(Reason.PLAN_MADE, "", better)
    moving = Moves(frozenset(), ("chat",))
    assert planned(answer, spec=AUTO, moves=moving).placement is None
    taken_up = planned(answer, spec=AUTO)
    assert taken_up.placement == PlacementStatus(time=NOW)
    assert condition(taken_up, "AsPlanned")[:2] == ("False", "Moving"), "who moves is not known yet"
    assert condition(planned(answer, spec=AUTO, status=taken_up.as_body()), "AsPlanned")[0] == "True"
    before = {"placement": PLACED.as_body()}
    assert planned(None, status=before).placement is None, "its mode is Recommend"
    body = {**PLANNED, "spec": {}, "status": before}
    invalid = build(body, None, problem=SpecInvalidError("spec: no"))
    assert invalid.placement == PLACED
