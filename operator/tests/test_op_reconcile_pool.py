"""Turn servers of a pool's groups, and what members are told; whatever call fails, the end is the same."""

import copy

import pytest
from op_devices import raw_member
from op_planning import planned_pool
from op_pool_memory import (
    KEY,
    Operator,
    allocate,
    claim_of,
    claims,
    condition,
    settle,
    update,
    with_pool,
    with_services,
)
from op_pools import pool_body
from op_world import body, pod

from headrace_operator.api import Reason
from headrace_operator.api.placement import PlanStatus
from headrace_operator.errors import ApiError
from headrace_operator.names import POOL_LABEL, SERVICE_LABEL
from headrace_operator.planning.question import Answer


async def test_members_are_told_of_their_groups_server_and_others_of_none():
    memory = with_pool(fast=["chat"])
    await settle(memory)
    told = memory.turn_group("chat")
    assert (told.host, told.port) == ("10.0.0.7", 9500)
    assert told.token == memory.objects["ConfigMap", "shared-fast-turns"]["data"]["token"]
    assert memory.turn_group("code") is None
    assert condition(memory, "Ready") == ("False", "TurnServerNotReady")


async def test_a_running_operator_has_members_told_without_being_asked_to_look_at_them():
    memory = with_pool(fast=["chat", "code"])
    operator = Operator(memory)
    await operator.work()
    assert memory.turn_group("chat") == memory.turn_group("code") is not None


async def test_groups_have_tokens_of_their_own_and_keep_them():
    memory = with_pool(fast=["chat"], slow=["code"])
    await settle(memory)
    before = memory.turn_group("chat").token, memory.turn_group("code").token
    assert before[0] != before[1]
    await settle(memory)
    assert (memory.turn_group("chat").token, memory.turn_group("code").token) == before


async def test_what_a_pool_has_no_more_is_deleted_and_nothing_else():
    memory = with_pool(fast=["chat"], slow=["code"])
    await settle(memory)
    changed = pool_body(fast=["chat"])
    changed["metadata"]["generation"] = 2
    memory.store({**changed, "status": memory.objects["GPUPool", "shared"]["status"]})
    memory.writes.clear()
    await settle(memory)
    kinds = ("ConfigMap", "Deployment", "NetworkPolicy", "Service")
    deleted = {each[1:] for each in memory.writes if each[0] == "delete"}
    assert deleted == {(kind, "shared-slow-turns") for kind in kinds}
    assert memory.turn_group("code") is None
    assert memory.turn_group("chat") is not None


async def test_members_of_a_deleted_pool_compute_whenever_they_want():
    memory = with_pool(fast=["chat"])
    await settle(memory)
    operator = Operator(memory)
    operator.cache.drop(memory.objects.pop(("GPUPool", "shared")))
    operator.queue[:] = [KEY]
    await operator.work()
    assert memory.turn_group("chat") is None


async def test_a_service_that_comes_later_has_its_pool_looked_at():
    memory = with_pool(fast=["chat", "new"])
    await settle(memory)
    assert condition(memory, "Ready") == ("False", "MemberNotFound")
    operator = Operator(memory)
    assert KEY in operator.cache.put(copy.deepcopy(memory.store(body("new"))))
    assert KEY in operator.cache.drop(memory.objects["LLMService", "new"])
    assert KEY not in operator.cache.put(copy.deepcopy(memory.store(body("other"))))


async def test_somebody_elses_object_of_that_name_is_not_taken():
    memory = with_pool(fast=["chat"])
    theirs = {
        "kind": "Service",
        "metadata": {"name": "shared-fast-turns", "namespace": "llm", "uid": "theirs"},
    }
    memory.store({**theirs, "spec": {}})
    await settle(memory)
    accepted = memory.objects["GPUPool", "shared"]["status"]["conditions"][0]
    assert (accepted["status"], accepted["reason"]) == ("False", "ObjectNameTaken")
    assert "rename the GPUPool" in accepted["message"]
    assert memory.turn_group("chat") is None


async def test_a_paused_pool_is_left_as_it_is():
    memory = with_pool(fast=["chat"])
    memory.objects["GPUPool", "shared"]["metadata"]["annotations"] = {"headrace.dev/paused": "true"}
    await settle(memory)
    assert not [name for _, name in memory.objects if name.endswith("-turns")]
    assert condition(memory, "Ready") == ("False", "TurnServerNotReady")


async def test_whatever_call_fails_the_end_is_the_same():
    whole = with_pool(fast=["chat", "code"])
    await settle(whole)
    calls = whole.calls
    for number in range(1, calls + 1):
        memory = with_pool(fast=["chat", "code"])
        memory.fail(number, "before" if number % 2 else "after")
        await settle(memory)
        assert set(memory.objects) == set(whole.objects)
        assert memory.turn_group("chat") == memory.turn_group("code") is not None


async def test_trouble_is_raised_once_the_status_tells_of_it():
    memory = with_pool(fast=["chat"])
    memory.refusal, memory.refused = ApiError(500, "no etcd"), "NetworkPolicy"
    operator = Operator(memory)
    operator.queue[:] = [KEY]
    with pytest.raises(ApiError, match="no etcd"):
        await operator.work()
    assert condition(memory, "Ready") == ("False", "ReconcileError")


async def test_members_share_the_groups_devices_and_its_server_holds_them_once_they_are_there():
    memory = with_services(raw_member("chat"), raw_member("code"), small=["chat", "code"])
    await settle(memory)
    [claim] = claims(memory)
    assert claim_of(memory, "chat") == claim_of(memory, "code") == claim
    server = memory.objects["Deployment", "shared-small-turns"]["spec"]
    assert server["replicas"] == 0, "the first member decides where"
    assert condition(memory, "Placed") == ("False", "DevicesNotAllocated")
    allocate(memory)
    await settle(memory)
    assert memory.objects["Deployment", "shared-small-turns"]["spec"]["replicas"] == 1
    assert claim_of(memory, "shared-small-turns") == claim
    assert condition(memory, "Placed") == ("True", "DevicesShared")


async def test_services_that_run_move_to_the_devices_of_their_group_and_back():
    memory = with_services(raw_member("chat"), raw_member("code"), small=["chat"])
    await settle(memory)
    assert claim_of(memory, "code") == "code-gpu"
    update(memory, pool_body(small=["chat", "code"]), "GPUPool")
    await settle(memory)
    assert claim_of(memory, "code") == claims(memory)[0]
    assert ("ResourceClaimTemplate", "code-gpu") not in memory.objects
    operator = Operator(memory)
    operator.cache.drop(memory.objects.pop(("GPUPool", "shared")))
    operator.queue[:] = [KEY]
    await operator.work()
    assert claim_of(memory, "code") == "code-gpu"


async def test_a_running_operator_has_members_moved_without_being_asked_to_look_at_them():
    memory = with_services(raw_member("chat"), raw_member("code"), small=["chat", "code"])
    operator = Operator(memory)
    await operator.work()
    assert claim_of(memory, "chat") == claim_of(memory, "code") == claims(memory)[0]


async def test_a_group_without_room_for_its_members_changes_nothing():
    memory = with_services(raw_member("chat"), raw_member("code", 70), small=["chat", "code"])
    await settle(memory)
    assert condition(memory, "Accepted") == ("False", "MemoryOvercommitted")
    assert claims(memory) == []
    assert claim_of(memory, "chat") == "chat-gpu"
    assert condition(memory, "Accepted", "chat", "LLMService") == ("True", "Valid")


async def test_a_member_that_comes_to_want_more_than_there_is_stays_as_it_is_and_the_others_do_too():
    memory = with_services(raw_member("chat"), raw_member("code"), small=["chat", "code"])
    await settle(memory)
    before = [memory.objects["Deployment", name]["spec"]["template"] for name in ("chat", "code")]
    update(memory, raw_member("code", 70))
    await settle(memory)
    assert [memory.objects["Deployment", name]["spec"]["template"] for name in ("chat", "code")] == before
    assert condition(memory, "Accepted", "code", "LLMService") == ("False", "MemoryOvercommitted")
    assert condition(memory, "Accepted", "chat", "LLMService") == ("True", "Valid")
    assert condition(memory, "Accepted") == ("False", "MemoryOvercommitted")
    update(memory, raw_member("code", 60))
    await settle(memory)
    assert condition(memory, "Accepted") == condition(memory, "Accepted", "code", "LLMService")
    assert memory.objects["Deployment", "code"]["spec"]["template"] != before[1]


async def test_a_member_that_asks_for_other_devices_has_its_own_and_the_others_stay():
    memory = with_services(raw_member("chat"), raw_member("code"), small=["chat", "code"])
    await settle(memory)
    [claim] = claims(memory)
    update(memory, raw_member("code", device_class="other"))
    await settle(memory)
    assert condition(memory, "Accepted") == ("False", "MembersDiffer")
    assert claim_of(memory, "code") == "code-gpu"
    assert claim_of(memory, "chat") == claim


async def test_devices_that_pods_still_have_are_not_given_back():
    memory = with_services(raw_member("chat"), raw_member("code"), small=["chat", "code"])
    await settle(memory)
    [small] = claims(memory)
    allocate(memory)
    update(memory, raw_member("chat", tensorParallelSize=2))
    await settle(memory)
    [_, large] = claims(memory)
    assert claim_of(memory, "chat") == claim_of(memory, "code") == large
    released = {**memory.objects["ResourceClaim", small], "status": {}}
    memory.store(released)
    await settle(memory)
    assert claims(memory) == [large]


def on_a_node(memory, name, service, claim, until=None):
    """Store a pod of a service, or of the pool, that has a claim; `until`: the end of its grace."""
    pod_ = pod(name)
    pod_["metadata"]["labels"] = {SERVICE_LABEL: service} if service else {POOL_LABEL: "shared"}
    pod_["spec"] |= {
        "nodeName": "node-a",
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
    }
    if until:
        pod_["metadata"]["deletionTimestamp"] = until
    memory.store(pod_)


LONG_AGO, NOT_YET = "2026-01-01T00:00:00Z", "2999-01-01T00:00:00Z"


async def with_devices():
    """A group on one claim, which its members and its server have on a node."""
    memory = with_services(raw_member("chat"), raw_member("code"), small=["chat", "code"])
    await settle(memory)
    allocate(memory)
    [claim] = claims(memory)
    for name, service in (("chat-1", "chat"), ("code-1", "code"), ("turns-1", None)):
        on_a_node(memory, name, service, claim)
    await settle(memory)
    return memory, claim


async def test_a_group_whose_node_is_dead_gets_other_devices_and_keeps_them_when_the_node_is_back():
    memory, first = await with_devices()
    for name, service in (("chat-1", "chat"), ("code-1", "code"), ("turns-1", None)):
        on_a_node(memory, name, service, first, until=LONG_AGO)
    await settle(memory)
    [second] = set(claims(memory)) - {first}
    assert second.startswith(f"{first}-")
    assert claim_of(memory, "chat") == claim_of(memory, "code") == second
    assert memory.objects["Deployment", "shared-small-turns"]["spec"]["replicas"] == 0
    assert condition(memory, "Placed") == ("False", "ClaimDeleted")
    allocate(memory, second)
    await settle(memory)
    assert claim_of(memory, "shared-small-turns") == second
    assert condition(memory, "Placed") == ("True", "DevicesShared")
    for name in ("chat-1", "code-1", "turns-1"):
        del memory.objects["Pod", name]
    del memory.objects["ResourceClaim", first]
    memory.writes.clear()
    await settle(memory)
    assert claim_of(memory, "chat") == claim_of(memory, "code") == second
    assert not memory.writes


@pytest.mark.parametrize("until", [None, NOT_YET])
async def test_devices_that_one_pod_may_still_use_are_not_given_up(until):
    memory, claim = await with_devices()
    on_a_node(memory, "chat-1", "chat", claim, until=LONG_AGO)
    on_a_node(memory, "turns-1", None, claim, until=LONG_AGO)
    on_a_node(memory, "code-1", "code", claim, until=until)
    await settle(memory)
    assert claims(memory) == [claim]
    assert claim_of(memory, "chat") == claim


async def test_members_move_to_a_new_claim_when_somebody_deletes_theirs():
    memory, first = await with_devices()
    await memory.delete("ResourceClaim", "llm", first, "")
    await settle(memory)
    [second] = set(claims(memory)) - {first}
    assert claim_of(memory, "chat") == claim_of(memory, "code") == second


async def test_a_change_of_a_member_has_its_pool_looked_at_and_a_change_of_status_does_not():
    memory = with_services(raw_member("chat"), small=["chat"])
    await settle(memory)
    operator = Operator(memory)
    same = copy.deepcopy(memory.store(copy.deepcopy(memory.objects["LLMService", "chat"])))
    assert KEY not in operator.cache.put(same)
    update(memory, raw_member("chat", 50))
    assert KEY in operator.cache.put(copy.deepcopy(memory.objects["LLMService", "chat"]))


async def test_a_pool_has_its_plan_made_from_its_services_and_their_ready_engines():
    memory = with_services(body("chat"))
    memory.store(planned_pool("chat", "new"))
    operator = Operator(memory)
    await operator.work()
    view = await operator.plans.looks[KEY]()
    assert (list(view.services), dict(view.engines)) == (["chat"], {"chat": {}})
    assert view.pool["spec"] == memory.objects["GPUPool", "shared"]["spec"]
    assert memory.objects["GPUPool", "shared"]["status"]["conditions"][2]["reason"] == "MemberNotFound"

    made = PlanStatus(time="2026-01-01T00:00:00Z", gpus=1)
    operator.plans.answers[KEY] = Answer(Reason.PLAN_MADE, "made", made)
    operator.queue.append(KEY)
    await operator.work()
    assert memory.objects["GPUPool", "shared"]["status"]["plan"]["gpus"] == 1


async def test_an_operator_that_was_just_started_knows_whom_to_ask():
    memory = with_services(body("chat"))
    memory.store(planned_pool("chat", "new"))
    memory.store({"apiVersion": "v1", **pod("chat-1-a")})
    await Operator(memory).work()
    started = Operator(memory)
    await started.reconciler.reconcile(KEY)
    view = await started.plans.looks[KEY]()
    assert view.engines == {"chat": {"chat-1-a": "10.0.0.1"}}


@pytest.mark.parametrize("change", ["no plan is asked for", "the pool is deleted", "the pool is not valid"])
async def test_a_plan_that_is_not_wanted_any_more_is_made_no_more(change):
    memory = with_services(body("chat"))
    memory.store(planned_pool("chat", "new"))
    operator = Operator(memory)
    await operator.work()
    assert KEY in operator.plans.looks
    raw = pool_body(a=["chat"])
    if change == "the pool is deleted":
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if change == "the pool is not valid":
        raw["spec"] = {}
    raw["metadata"] |= {"generation": 2, "resourceVersion": "900"}
    memory.store(raw)
    operator.cache.put(raw)
    await operator.reconciler.reconcile(KEY)
    assert KEY not in operator.plans.looks
