"""The picker's view of a real Kubernetes API: lists, changes, and versions that are gone."""

import asyncio
import contextlib
import json
import uuid

import pytest
from gw_api import GROUP, connected, create_route
from gw_objects import endpoint_slice
from gw_rig import until
from kubernetes.aio import client

from headrace_gateway.catalog import ServiceKey
from headrace_gateway.kube import catalog_source, watch
from headrace_gateway.kube.catalog_source import KubernetesSource

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]


@pytest.fixture
async def api(apiserver):
    async with connected(apiserver) as api:
        yield api


@pytest.fixture
async def namespace(api):
    name = f"gateway-{uuid.uuid4().hex[:8]}"
    await client.CoreV1Api(api).create_namespace({"metadata": {"name": name}})
    return name


@contextlib.asynccontextmanager
async def following(api, *namespaces):
    """The catalogs that a source publishes."""
    catalogs = []
    task = asyncio.create_task(KubernetesSource(api, namespaces).run(catalogs.append))
    try:
        yield catalogs
    finally:
        await ended(task)


async def ended(task):
    """Cancel a task that should run for ever; what made it end before is raised."""
    if not task.done():
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def config_map(name="chat"):
    return {"metadata": {"name": name}}


def slice_of(*addresses):
    body = endpoint_slice(*((address, {"ready": True}) for address in addresses))
    del body["metadata"]["namespace"]
    return body


async def test_the_catalog_follows_the_cluster(api, namespace):
    custom, discovery = client.CustomObjectsApi(api), client.DiscoveryV1Api(api)
    key = ServiceKey(namespace, "chat")
    await create_route(api, namespace)
    async with following(api) as catalogs:

        def addresses():
            service = catalogs[-1].services.get(key) if catalogs else None
            return None if service is None else service.addresses

        await until(lambda: addresses() == (), "the service is known")
        await discovery.create_namespaced_endpoint_slice(namespace, slice_of("10.0.0.1"))
        await until(lambda: addresses() == ("10.0.0.1",), "its engine is known")
        await discovery.replace_namespaced_endpoint_slice(
            "x-chat-ipv4", namespace, slice_of("10.0.0.1", "10.0.0.2")
        )
        await until(lambda: addresses() == ("10.0.0.1", "10.0.0.2"), "its second engine is known")
        await custom.patch_namespaced_custom_object(
            *GROUP,
            namespace,
            "llmroutes",
            "chat",
            {"spec": {"balancer": "RoundRobin"}},
            _content_type="application/merge-patch+json",
        )
        await until(
            lambda: catalogs[-1].services[key].config.balancer == "RoundRobin", "the balancer changed"
        )
        await custom.delete_namespaced_custom_object(*GROUP, namespace, "llmroutes", "chat")
        await until(lambda: key not in catalogs[-1].services, "the service is gone")


async def test_what_has_not_changed_is_published_again_while_the_api_server_is_heard(
    api, namespace, monkeypatch
):
    monkeypatch.setattr(catalog_source, "AGAIN_SECONDS", 0.05)
    async with following(api, namespace) as catalogs:
        await until(lambda: len(catalogs) >= 5, "it is published again and again")
        assert all(catalog == catalogs[0] for catalog in catalogs)
        monkeypatch.setattr(catalog_source, "STALE_SECONDS", 0.0)
        await asyncio.sleep(0.2)
        published = len(catalogs)
        await asyncio.sleep(0.2)
        assert len(catalogs) == published


async def test_only_the_chosen_namespaces_are_seen(api, namespace):
    await create_route(api, namespace)
    async with following(api, "default") as elsewhere, following(api, namespace, "default") as here:
        await until(
            lambda: here and ServiceKey(namespace, "chat") in here[-1].services, "the service is known"
        )
        await until(lambda: elsewhere, "the other namespace was listed")
        assert elsewhere[-1].services == {}


async def test_what_no_watch_told_is_found_by_a_new_list_now_and_then(api, namespace, monkeypatch):
    monkeypatch.setattr(watch, "WATCH_SECONDS", 1)
    genuine, lists = watch._list, []

    async def listed(store, call, selection):
        lists.append(await genuine(store, call, selection))
        return lists[-1]

    monkeypatch.setattr(watch, "_list", listed)
    store = watch.Store("ConfigMap", lambda: None)
    core = client.CoreV1Api(api)
    task = asyncio.create_task(
        watch.follow_objects(store, core.list_namespaced_config_map, namespace=namespace)
    )
    try:
        await until(lambda: len(lists) >= 2, "it lists again after a watch")
    finally:
        task.cancel()


async def test_a_version_that_is_gone_leads_to_a_new_list(api, namespace, monkeypatch):
    """The watch is made to start from a version that the server has not kept."""
    core = client.CoreV1Api(api)
    listed = []
    store = watch.Store("ConfigMap", lambda: listed.append(dict(store.objects)))
    genuine, versions = watch._watch, []

    def from_the_past(call, selection, version):
        versions.append(version)
        return gone() if len(versions) == 1 else genuine(call, selection, version)

    async def gone():
        error = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        raise client.ApiException(status=410, reason=json.dumps(error))
        yield

    monkeypatch.setattr(watch, "_watch", from_the_past)
    monkeypatch.setattr(watch, "FIRST_PAUSE", 0.01)
    task = asyncio.create_task(
        watch.follow_objects(store, core.list_namespaced_config_map, namespace=namespace)
    )
    try:
        await until(lambda: len(versions) >= 2, "it lists again and watches")
        await core.create_namespaced_config_map(namespace, config_map())
        await until(lambda: (namespace, "chat") in listed[-1], "changes arrive on the new watch")
    finally:
        await ended(task)


async def test_a_mute_watch_is_started_anew(api, namespace, monkeypatch):
    core = client.CoreV1Api(api)
    restarts = []
    store = watch.Store("ConfigMap", lambda: None)
    monkeypatch.setattr(watch, "MUTE_SECONDS", 0.05)
    monkeypatch.setattr(watch, "FIRST_PAUSE", 0.01)
    genuine = watch._watch
    monkeypatch.setattr(watch, "_watch", lambda *given: restarts.append(given[-1]) or genuine(*given))
    task = asyncio.create_task(
        watch.follow_objects(
            store, core.list_namespaced_config_map, namespace=namespace, label_selector="none=here"
        )
    )
    try:
        await until(lambda: len(restarts) >= 3, "mute watches are replaced")
        assert len(set(restarts)) == 1  # from the same version, without a new list
    finally:
        await ended(task)
