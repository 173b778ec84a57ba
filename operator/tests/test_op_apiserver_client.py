"""`ApiCluster` and resync against a real API server."""

import pytest
from op_golden import SETTINGS, cases, golden
from op_kube import llmservice, ok

from e2e.faults import Proxy, Rule, Status
from headrace_operator.api import Key, parse_service
from headrace_operator.decide.model_names import served_model_names
from headrace_operator.decide.observation import observe
from headrace_operator.decide.plan import contains_fields
from headrace_operator.decide.service_events import service_events
from headrace_operator.decide.service_status import Executed, Subject, build_status
from headrace_operator.desired import desired_objects
from headrace_operator.errors import ApiError, RefusedError
from headrace_operator.kube import client as module
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.client import connect
from headrace_operator.kube.event_recorder import EventRecorder
from headrace_operator.kube.kinds import EVENT, resource
from headrace_operator.kube.resync import resync
from headrace_operator.run.workqueue import WorkQueue
from headrace_operator.settings import Settings

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]
SELECTOR = "app.kubernetes.io/managed-by=headrace"


@pytest.fixture
def service(kube):
    """A paused service, which a running operator leaves alone."""
    raw = llmservice(model={"source": "hf://a/b", "servedName": kube.namespace})
    raw["metadata"]["annotations"] = {"headrace.dev/paused": "true"}
    return parse_service(ok(kube.create("llmservices", raw)))


@pytest.mark.parametrize("case", cases())
async def test_what_was_applied_is_what_is_there(api, kube, case):
    raw = golden(case) | {"apiVersion": "headrace.dev/v1alpha1", "kind": "LLMService"}
    raw["metadata"] = {"name": raw["metadata"]["name"], "annotations": {"headrace.dev/paused": "true"}}
    service = parse_service(ok(kube.create("llmservices", raw)))
    for manifest in desired_objects(service, SETTINGS, served_model_names(service), None):
        first = await api.apply(manifest)
        assert contains_fields(first, manifest)
        assert (await api.apply(manifest))["metadata"].get("generation") == first["metadata"].get(
            "generation"
        )


@pytest.mark.parametrize("name", ["../../../../../../api/v1/namespaces", "..", "?limit=500", "x?watch=true"])
async def test_a_name_that_somebody_made_up_leads_to_no_other_object(api, kube, name):
    """Whoever may create pods writes the names of their owners, which the API server takes as they are."""
    maker = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": name,
        "uid": "made-up",
        "controller": True,
    }
    metadata = {"name": "x", "ownerReferences": [maker]}
    container = {"name": "x", "image": "x"}
    made = ok(kube.create("pods", {"metadata": metadata, "spec": {"containers": [container]}}))
    assert made["metadata"]["ownerReferences"][0]["name"] == name
    assert await api.read("ReplicaSet", kube.namespace, name) is None


async def test_absent_objects_and_refusals(api, service):
    namespace = service.key.namespace
    assert await api.read("Service", namespace, "nobody") is None
    wrong = desired_objects(service, SETTINGS, ["x"], None)[0] | {"data": {"not a key": "x"}}
    with pytest.raises(ApiError, match="a valid config key") as caught:
        await api.apply(wrong)
    assert caught.value.code == 422


async def test_delete_takes_only_the_object_that_was_seen(api, service):
    manifest = desired_objects(service, SETTINGS, ["x"], None)[0]
    name, namespace = manifest["metadata"]["name"], service.key.namespace
    uid = (await api.apply(manifest))["metadata"]["uid"]
    await api.delete("ConfigMap", namespace, name, "another-uid")
    assert await api.read("ConfigMap", namespace, name)
    await api.delete("ConfigMap", namespace, name, uid)
    assert await api.read("ConfigMap", namespace, name) is None
    await api.delete("ConfigMap", namespace, name, uid)


async def test_lists_go_on_over_pages(api, service, monkeypatch):
    monkeypatch.setattr(module, "_PAGE", 1)
    for manifest in desired_objects(service, SETTINGS, ["x"], None):
        await api.apply(manifest)
        if manifest["kind"] == "ConfigMap":
            await api.apply({**manifest, "metadata": {**manifest["metadata"], "name": "chat-other"}})
    namespace = service.key.namespace
    found = [body async for body in api.list_objects(resource("ConfigMap"), namespace, SELECTOR)]
    assert {body["metadata"]["name"] for body in found} == {"chat-policy", "chat-other"}
    assert {body["kind"] for body in found} == {"ConfigMap"}


async def test_resync_forgets_what_is_gone_and_queues_what_is_there(api, kube, service):
    namespace = service.key.namespace
    cache, queue = Cache(), WorkQueue(lambda: 0.0)
    cache.put(await api.read("LLMService", namespace, "chat"))
    kept, lost = desired_objects(service, SETTINGS, ["x"], None)[:2]
    cache.put(await api.apply(kept))
    cache.put(await api.apply(lost))
    ok(kube.delete("networkpolicies", "chat"))
    await resync(cache, api, queue.add, Settings(sidecar_image="i", watch_namespaces=(namespace,)))
    assert [body["kind"] for body in cache.owned(Key(namespace, "chat"))] == ["ConfigMap"]
    assert queue.depth == 1


async def test_an_unreachable_server_is_an_error_without_a_code(api, monkeypatch):
    monkeypatch.setattr(api._api.configuration, "host", "https://127.0.0.1:1")
    with pytest.raises(ApiError, match="cannot be reached") as caught:
        await api.read("Service", "default", "x")
    assert caught.value.code == 0


async def test_errors_say_how_long_to_wait(crd, kube, tmp_path, monkeypatch):
    with Proxy(crd.url, crd.folder / "pki" / "ca.crt", crd.token) as proxy:
        monkeypatch.setenv("KUBECONFIG", str(proxy.kubeconfig(tmp_path / "kubeconfig")))
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        async with connect() as api:
            with (
                proxy.rule(Rule(Status(429, retry_after=7))),
                pytest.raises(ApiError, match="a fault") as caught,
            ):
                await api.read("Service", kube.namespace, "x")
            assert (caught.value.code, caught.value.retry_after) == (429, 7.0)
            assert await api.read("Service", kube.namespace, "x") is None


@pytest.mark.parametrize("letter", ["x", "é", "模"])
async def test_the_longest_event_is_taken(api, service, letter):
    """The API server counts bytes."""
    refused = RefusedError("InvalidSpec", letter * 5000)
    subject = Subject(service.key, 1, 1, False, Executed.ALL, {})
    told = build_status(subject, observe([], [], {}), refused, "", gateway="", now="2026-01-01T00:00:00Z")
    notes = {event.note for event in service_events({}, told)}
    body = await api.read("LLMService", service.key.namespace, service.key.name)
    for event in service_events({}, told):
        await EventRecorder(api).record(body, event)
    taken = {event["note"] async for event in api.list_objects(EVENT, service.key.namespace, "")}
    assert notes <= taken
    assert max(len(note.encode()) for note in notes) > 1020
