"""Headrace's own kinds on a real API server, for tests of the picker."""

import contextlib
from pathlib import Path

import yaml
from gw_objects import llmroute
from gw_rig import until
from kubernetes.aio import client, config

GROUP = ("headrace.dev", "v1alpha1")
CRDS = Path(__file__).parents[3] / "crds"


@contextlib.asynccontextmanager
async def connected(apiserver):
    """A client of the API server, which has Headrace's kinds."""
    settings = client.Configuration()
    await config.load_kube_config(str(apiserver.kubeconfig), client_configuration=settings)
    async with client.ApiClient(settings) as api:
        await _install(api)
        yield api


async def _install(api):
    for file in CRDS.glob("*.yaml"):
        with contextlib.suppress(client.ApiException):  # it is there
            definition = yaml.safe_load(file.read_text())
            await client.ApiextensionsV1Api(api).create_custom_resource_definition(definition)

    async def served():
        with contextlib.suppress(client.ApiException):
            for plural in ("llmservices", "llmroutes"):
                await client.CustomObjectsApi(api).list_cluster_custom_object(*GROUP, plural)
            return True

    await until(served, "Headrace's kinds are served")


async def create_route(api, namespace, name="chat", *, owned=True):
    """A route as the operator writes it; its owner exists, or garbage collection would take it."""
    custom = client.CustomObjectsApi(api)
    body = llmroute(namespace, name)
    [owner] = body["metadata"]["ownerReferences"]
    if owned:
        service = {
            "apiVersion": "/".join(GROUP),
            "kind": "LLMService",
            "metadata": {"name": name, "annotations": {"headrace.dev/paused": "true"}},
            "spec": {"model": {"source": "hf://a/b"}, "engine": {"image": "example/vllm:1"}},
        }
        made = await custom.create_namespaced_custom_object(*GROUP, namespace, "llmservices", service)
        owner["uid"] = made["metadata"]["uid"]
    body["metadata"] = {"name": name, "ownerReferences": [owner] if owned else []}
    del body["status"]
    return await custom.create_namespaced_custom_object(*GROUP, namespace, "llmroutes", body)
