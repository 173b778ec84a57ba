"""The ConfigMaps of a release without LLMRoutes become routes, whoever changed them, and go."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from op_memory import operator, update, with_service
from op_world import body

from headrace_operator.api import Key
from headrace_operator.errors import ApiError

KEY = Key("llm", "chat")
SAID = {"balancer": "Random", "maxQueueSeconds": 1.5, "servedName": "chat", "schema": 1}


def config_map(owner="llm-chat", **said):
    document = {"namespace": "llm", "name": "chat", "models": ["llm/chat", "chat"], **SAID, **said}
    labels = {"headrace.dev/gateway-config": "true", "headrace.dev/service": "chat"}
    reference = {"kind": "LLMService", "name": "chat", "uid": owner, "controller": True}
    metadata = {"name": "chat-gateway", "namespace": "llm", "uid": "left", "ownerReferences": [reference]}
    data = {"gateway.json": json.dumps(document)}
    return {"kind": "ConfigMap", "metadata": {**metadata, "labels": labels}, "data": data}


def upgraded(left=None, annotations=None, **spec):
    """A service that an earlier release runs, and nothing else."""
    memory = with_service(**spec)
    memory.objects["LLMService", "chat"]["metadata"]["annotations"] = annotations or {}
    memory.store(left or config_map())
    memory.writes.clear()
    return memory


def route(memory):
    made = memory.objects.get(("LLMRoute", "chat"))
    return made and made["spec"]


@pytest.mark.parametrize(
    "how",
    [
        {"annotations": {"headrace.dev/paused": "true"}},
        {"podTemplate": {"volumes": [{"name": "host", "hostPath": {"path": "/etc"}}]}},
        {"scheduling": {"policy": "Unknown"}},
    ],
    ids=["paused", "refused", "invalid"],
)
async def test_a_service_that_is_not_carried_out_keeps_its_route(how):
    memory = upgraded(**how)
    await operator(memory).reconcile(KEY)
    assert route(memory)["models"] == ["llm/chat", "chat"]
    assert (route(memory)["balancer"], route(memory)["maxQueueMs"]) == ("Random", 1500)
    assert ("ConfigMap", "chat-gateway") in memory.objects


async def test_names_and_ports_that_somebody_wrote_there_are_not_taken():
    left = config_map(models=["llm/chat", "victim"], port=22, sidecarPort=22, namespace="a", name="b")
    memory = upgraded(left, {"headrace.dev/paused": "true"})
    memory.store(body("victim", "aa", model={"source": "hf://a/b", "servedName": "victim"}))
    await operator(memory).reconcile(KEY)
    assert route(memory)["models"] == ["llm/chat", "chat"]
    assert (route(memory)["port"], route(memory)["sidecarPort"]) == (8000, 9400)


@pytest.mark.parametrize("other", [("chat", "aaa"), ("older", "llm")])
async def test_a_name_that_an_older_service_claims_is_not_taken(other):
    name, namespace = other
    model = {"source": "hf://a/b", "servedName": "chat"}
    memory = upgraded(annotations={"headrace.dev/paused": "true"})
    key = (f"LLMService of {namespace}", name)
    memory.objects[key] = body(name, namespace, created="2025-01-01T00:00:00Z", model=model)
    await operator(memory).reconcile(KEY)
    assert route(memory)["models"] == ["llm/chat"]


@pytest.mark.parametrize(
    "left", [config_map("another"), config_map(balancer=3), {**config_map(), "data": None}]
)
async def test_what_is_not_the_services_own_or_cannot_be_read_makes_no_route(left):
    memory = upgraded(left, {"headrace.dev/paused": "true"})
    await operator(memory).reconcile(KEY)
    assert route(memory) is None


async def test_the_config_map_goes_when_no_earlier_picker_can_be_left():
    memory = upgraded()
    made = datetime.now(UTC)
    for age, left in ((0, True), (601, False)):
        await operator(memory).reconcile(KEY)
        made_then = (made - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
        memory.objects["LLMRoute", "chat"]["metadata"]["creationTimestamp"] = made_then
        await operator(memory).reconcile(KEY)
        assert (("ConfigMap", "chat-gateway") in memory.objects) is left
    assert route(memory)["balancer"] == "SAL"  # as the spec says
    update(memory, routing={"balancer": "Random"})
    await operator(memory).reconcile(KEY)
    assert route(memory)["balancer"] == "Random"


@pytest.mark.parametrize("what", ["route", "deletion"])
async def test_what_is_denied_of_it_is_told_and_holds_up_nothing_else(what):
    memory = upgraded()
    denied = ApiError(403, 'x: admission webhook "w" denied the request: leave it')
    if what == "route":
        memory.refusal, memory.refused = denied, "LLMRoute"
    else:
        await operator(memory).reconcile(KEY)
        memory.undeletable = denied
        memory.objects["LLMRoute", "chat"]["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    update(memory, scheduling={"policy": "LARRY"}, replicas=7)
    with pytest.raises(ApiError, match="leave it"):
        await operator(memory).reconcile(KEY)
    told = {c["type"]: c for c in memory.objects["LLMService", "chat"]["status"]["conditions"]}
    assert (told["Degraded"]["reason"], "leave it" in told["Degraded"]["message"]) == ("ReconcileError", True)
    if what == "deletion":
        assert memory.objects["Deployment", "chat"]["spec"]["replicas"] == 7
    else:
        assert told["Accepted"]["reason"] == "AdmissionDenied"
