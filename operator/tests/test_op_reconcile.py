"""The loop under failure: whatever call fails, before or after it took effect, the end is the same."""

import dataclasses

import pytest
from op_golden import SETTINGS
from op_memory import operator, update, with_service
from op_world import body, hash_of, pod, report

from headrace_operator import names
from headrace_operator.api import Key
from headrace_operator.errors import ApiError
from headrace_operator.run.reconcile import Reconciler

KEY = Key("llm", "chat")


async def settle(memory, settings=SETTINGS):
    """Reconcile until nothing is written; restarts the operator after a failure."""
    running = operator(memory, settings)
    for _ in range(10):
        before = len(memory.writes)
        try:
            await running.reconcile(KEY)
        except ApiError:
            running = operator(memory, settings)
            continue
        if len(memory.writes) == before:
            return running
    raise AssertionError("it does not settle")


def conditions(memory):
    found = memory.objects["LLMService", "chat"]["status"]["conditions"]
    return {c["type"]: (c["status"], c["reason"]) for c in found}


async def test_a_failure_without_words_is_told_too():
    memory = with_service()
    memory.refusal = TimeoutError()
    with pytest.raises(TimeoutError):
        await operator(memory).reconcile(KEY)
    assert conditions(memory)["Degraded"] == ("True", "ReconcileError")
    assert conditions(memory)["Reconciling"] == ("True", "ReconcileError")


async def with_engine():
    """A settled service with one engine, which runs its policy."""
    memory = with_service()
    running = await settle(memory)
    memory.store(pod("a"))
    running.cache.put(memory.objects["Pod", "a"])
    running.sidecars.said = {"a": report(hash_of(body()))}
    await running.reconcile(KEY)
    return memory, running


async def test_it_settles_and_writes_nothing_more():
    memory = with_service()
    running = await settle(memory)
    memory.writes.clear()
    for _ in range(3):
        await running.reconcile(KEY)
    assert memory.writes == []


async def test_who_begins_to_lead_writes_nothing_before_and_after_engines_are_asked():
    memory, running = await with_engine()
    assert conditions(memory)["PolicyApplied"] == ("True", "Applied")
    memory.writes.clear()
    fresh = operator(memory)
    await fresh.reconcile(KEY)
    fresh.sidecars.said = running.sidecars.said
    await fresh.reconcile(KEY)
    assert memory.writes == []


async def count_calls(**spec):
    memory = with_service(**spec)
    await settle(memory)
    return memory.calls


DRA = {"accelerator": {"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}}}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("spec", [{}, DRA], ids=["cpu", "dra"])
async def test_a_failure_at_any_call_leads_to_the_same_end(spec, when):
    undisturbed = with_service(**spec)
    await settle(undisturbed)
    for call in range(1, undisturbed.calls + 1):
        memory = with_service(**spec)
        memory.fail(call, when)
        await settle(memory)
        assert memory.owned() == undisturbed.owned(), f"call {call} failed {when}"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failure_in_the_middle_of_a_change_leads_to_the_fresh_end(when):
    fresh = with_service(replicas=5, engine={"image": "example/vllm:2"})
    await settle(fresh)
    for call in range(1, 20):
        memory = with_service(**DRA)
        await settle(memory)
        update(memory, replicas=5, engine={"image": "example/vllm:2"})
        memory.fail(memory.calls + call, when)
        await settle(memory)
        assert memory.owned() == fresh.owned(), f"call {call} failed {when}"


async def test_an_outage_changes_nothing_and_heals():
    memory = with_service()
    running = await settle(memory)
    before = memory.owned()
    update(memory, replicas=5)
    running = operator(memory)
    memory.down = True
    for _ in range(5):
        with pytest.raises(ApiError):
            await running.reconcile(KEY)
    assert memory.owned() == before
    memory.down = False
    await settle(memory)
    assert memory.objects["Deployment", "chat"]["spec"]["replicas"] == 5


async def test_a_refused_spec_writes_the_status_alone_and_the_next_good_one_goes_on():
    memory = with_service()
    await settle(memory)
    before = memory.owned()
    update(memory, replicas=7, slo={"tpot": "0s"})
    await settle(memory)
    assert memory.owned() == before
    assert conditions(memory)["Accepted"] == ("False", "InvalidSpec")
    update(memory, replicas=7)
    await settle(memory)
    assert memory.objects["Deployment", "chat"]["spec"]["replicas"] == 7
    assert conditions(memory)["Accepted"] == ("True", "Valid")


def generation_of(memory, kind):
    found = memory.objects["LLMService", "chat"]["status"]["conditions"]
    return next(c["observedGeneration"] for c in found if c["type"] == kind)


async def test_a_change_that_was_not_carried_out_is_not_told_as_applied():
    memory, running = await with_engine()
    assert generation_of(memory, "PolicyApplied") == 1

    update(memory, scheduling={"policy": "LARRY"})
    memory.objects["LLMService", "chat"]["metadata"]["annotations"] = {"headrace.dev/paused": "true"}
    running.cache.put(memory.objects["LLMService", "chat"])
    await running.reconcile(KEY)
    assert conditions(memory)["PolicyApplied"] == ("True", "Applied")
    assert (generation_of(memory, "PolicyApplied"), generation_of(memory, "Accepted")) == (1, 2)
    assert conditions(memory)["Reconciling"] == ("True", "Paused"), "the change is still to come"

    update(memory, scheduling={"policy": "LARRY"})
    running.cache.put(memory.objects["LLMService", "chat"])
    memory.fail(memory.calls + 1, "before")
    with pytest.raises(ApiError):
        await running.reconcile(KEY)
    assert conditions(memory)["PolicyApplied"] == ("True", "Applied")
    assert generation_of(memory, "PolicyApplied") == 1


async def test_a_wrong_spec_is_not_accepted_while_paused():
    memory = with_service()
    await settle(memory)
    update(memory, podTemplate={"volumes": [{"name": "host", "hostPath": {"path": "/etc"}}]})
    memory.objects["LLMService", "chat"]["metadata"]["annotations"] = {"headrace.dev/paused": "true"}
    before = memory.owned()
    await settle(memory)
    assert conditions(memory)["Accepted"] == ("False", "HostPathNotAllowed")
    assert conditions(memory)["Stalled"] == ("True", "HostPathNotAllowed")
    assert memory.owned() == before


CLAIMS = {
    "model": (
        {"model": {"source": "pvc://moved/tiny", "servedName": "chat"}},
        "ModelClaimNotFound",
        "spec.model.source names claim moved",
    ),
    "volume": (
        {"podTemplate": {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "moved"}}]}},
        "VolumeClaimNotFound",
        "spec.podTemplate.volumes names claim moved",
    ),
}


@pytest.mark.parametrize("case", CLAIMS)
async def test_a_running_service_is_not_moved_to_a_claim_that_is_missing(case):
    change, reason, words = CLAIMS[case]
    memory = with_service()
    await settle(memory)
    before = memory.owned()
    update(memory, **change)
    await settle(memory)
    assert memory.owned() == before
    assert conditions(memory)["Accepted"] == ("False", reason)
    assert words in memory.objects["LLMService", "chat"]["status"]["conditions"][0]["message"]
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "moved", "uid": "moved"}}
    memory.objects["PersistentVolumeClaim", "moved"] = claim
    await operator(memory).reconcile(KEY)
    assert conditions(memory)["Accepted"] == ("True", "Valid")


async def test_claims_for_devices_on_a_cluster_without_them_change_no_pod():
    memory = with_service()
    await settle(memory)
    before = memory.owned()["Deployment", "chat"]
    update(
        memory,
        accelerator={"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}},
        routing={"balancer": "Random"},
    )
    memory.refusal = ApiError(404, "404 page not found")
    memory.refused = "ResourceClaimTemplate"
    await settle(memory)
    assert memory.owned()["Deployment", "chat"] == before
    assert memory.objects["LLMRoute", "chat"]["spec"]["balancer"] == "Random"
    found = memory.objects["LLMService", "chat"]["status"]["conditions"]
    told = next(c["message"] for c in found if c["type"] == "Accepted")
    assert "spec.accelerator.dra: needs resource.k8s.io/v1" in told
    assert "use devicePlugin" in told


async def test_a_field_that_a_pod_does_not_have_is_the_specs_mistake():
    memory = with_service()
    memory.refusal = ApiError(
        500, "failed to create typed patch object: .hostPath: field not declared in schema"
    )
    await settle(memory)
    assert conditions(memory)["Accepted"] == ("False", "InvalidSpec")


async def test_a_webhook_without_dry_run_leaves_the_answer_to_the_write():
    memory = with_service()
    memory.refusal = ApiError(400, 'admission webhook "x" does not support dry run')
    memory.refuses = lambda manifest, dry_run: dry_run
    await settle(memory)
    assert conditions(memory)["Accepted"] == ("True", "Valid")


@pytest.mark.parametrize("spec", [None, {}])
async def test_an_unreadable_route_stops_no_status(spec):
    memory = with_service()
    await settle(memory)
    memory.objects["LLMRoute", "chat"]["spec"] = spec
    update(memory, podTemplate={"volumes": [{"name": "host", "hostPath": {"path": "/etc"}}]})
    await operator(memory).reconcile(KEY)
    assert conditions(memory)["Accepted"] == ("False", "HostPathNotAllowed")


async def test_an_operator_upgrade_touches_no_template():
    memory = with_service()
    await settle(memory)
    template = memory.objects["Deployment", "chat"]["spec"]["template"]
    memory.writes.clear()
    upgraded = dataclasses.replace(SETTINGS, sidecar_image="example/sidecar:2")
    await settle(memory, upgraded)
    assert memory.writes == []
    update(memory, replicas=3)
    await settle(memory, upgraded)
    assert memory.objects["Deployment", "chat"]["spec"]["template"] == template


async def test_an_uncached_deployment_is_looked_up_before_it_is_rendered():
    memory = with_service()
    await settle(memory)
    template = memory.objects["Deployment", "chat"]["spec"]["template"]
    upgraded = operator(memory, dataclasses.replace(SETTINGS, sidecar_image="example/sidecar:2"))
    upgraded.cache.drop(memory.objects["Deployment", "chat"])
    await upgraded.reconcile(KEY)
    assert memory.objects["Deployment", "chat"]["spec"]["template"] == template


async def test_a_bug_is_told_in_the_status_and_raised(monkeypatch):
    memory = with_service()

    def broken(*_):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("headrace_operator.run.apply_spec.plan_actions", broken)
    with pytest.raises(ZeroDivisionError):
        await operator(memory).reconcile(KEY)
    assert conditions(memory)["Degraded"] == ("True", "ReconcileError")


async def test_leftovers_of_a_deleted_namesake_are_waited_for():
    memory = with_service()
    await settle(memory)
    renewed = body()
    renewed["metadata"]["uid"] = "another"
    memory.store(renewed)
    running = operator(memory)
    for item in list(memory.objects.values()):
        if item["kind"] != "LLMService":
            running.cache.drop(item)
    memory.writes.clear()
    assert await running.reconcile(KEY) == 2.0
    assert {kind for _, kind, _ in memory.writes} == {"LLMService"}


async def test_orphans_of_a_deleted_namesake_are_gone_on_with():
    """`kubectl delete --cascade=orphan`, then `kubectl apply`: engines run on, and follow the spec again."""
    memory = with_service()
    await settle(memory)
    template = memory.objects["Deployment", "chat"]["spec"]["template"]
    for item in memory.objects.values():
        item["metadata"].pop("ownerReferences", None)
    renewed = body(replicas=3)
    renewed["metadata"]["uid"] = "another"
    memory.store(renewed)
    await settle(memory)
    deployment = memory.objects["Deployment", "chat"]
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"] == template
    owned = [item for (kind, _), item in memory.objects.items() if kind != "LLMService"]
    assert {item["metadata"]["ownerReferences"][0]["uid"] for item in owned} == {"another"}


async def test_nothing_is_made_for_a_service_that_is_being_deleted():
    """Its watch may be behind that of its objects, which have lost their owner (`--cascade=orphan`)."""
    memory = with_service()
    running = await settle(memory)
    for item in memory.objects.values():
        if item["metadata"].pop("ownerReferences", None):
            running.cache.put(memory.store(item))
    memory.objects["LLMService", "chat"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    memory.writes.clear()
    await running.reconcile(KEY)
    assert {kind for _, kind, _ in memory.writes} <= {"LLMService"}
    assert all("ownerReferences" not in item["metadata"] for item in memory.objects.values())


async def test_a_deleted_service_is_left_to_the_garbage_collector():
    memory = with_service()
    running = await settle(memory)
    running.cache.drop(memory.objects["LLMService", "chat"])
    memory.writes.clear()
    assert await running.reconcile(KEY) is None
    assert memory.writes == []


def old_policy(running, memory):
    """One ready pod, whose engine still runs another policy."""
    memory.store(pod("a"))
    running.cache.put(memory.objects["Pod", "a"])
    running.sidecars.said = {"a": report("0" * 16)}


async def test_an_engine_with_another_policy_is_refreshed_and_observed_again():
    memory = with_service()
    running = await settle(memory)
    old_policy(running, memory)
    ours = hash_of(body())
    assert await running.reconcile(KEY) == pytest.approx(0.4)
    assert memory.objects["Pod", "a"]["metadata"]["annotations"] == {names.POLICY_REFRESH: ours}
    running.sidecars.said = {"a": report(ours)}
    assert await running.reconcile(KEY) is None
    assert conditions(memory)["PolicyApplied"] == ("True", "Applied")


@pytest.mark.parametrize(
    "change",
    [{"annotations": {"headrace.dev/paused": "true"}}, {"slo": {"tpot": "0s"}}],
    ids=["paused", "refused"],
)
async def test_without_leave_to_act_no_refresh_is_written_or_waited_for(change):
    memory = with_service()
    await settle(memory)
    spec = {key: value for key, value in change.items() if key != "annotations"}
    update(memory, **spec)
    memory.objects["LLMService", "chat"]["metadata"]["annotations"] = change.get("annotations", {})
    running = operator(memory)
    old_policy(running, memory)
    assert await running.reconcile(KEY) is None
    assert "annotations" not in memory.objects["Pod", "a"]["metadata"]


async def test_a_refused_spec_stays_refused_while_the_api_server_fails(monkeypatch):
    memory = with_service(scheduling={"policy": "Unknown"})
    running = await settle(memory)
    assert conditions(memory)["Accepted"] == ("False", "InvalidSpec")

    async def fails(*_):
        raise ApiError(503, "unavailable")

    monkeypatch.setattr(Reconciler, "_read_pending_route", fails)  # before the spec is looked at
    with pytest.raises(ApiError):
        await running.reconcile(KEY)
    assert conditions(memory)["Accepted"] == ("False", "InvalidSpec")
    assert conditions(memory)["Stalled"] == ("True", "InvalidSpec")
    assert conditions(memory)["Degraded"] == ("True", "ReconcileError")
