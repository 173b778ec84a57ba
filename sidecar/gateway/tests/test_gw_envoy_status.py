"""Real API server, Envoy and pickers: what LLMRoute's status says is what Envoy acknowledged."""

import asyncio
import os
import subprocess
import sys
import uuid

import aiohttp
import pytest
from gw_api import GROUP, connected, create_route
from gw_objects import endpoint_slice
from gw_rig import Rig, ask_pickers, until
from kubernetes.aio import client

from headrace_gateway import names

pytestmark = [pytest.mark.envoy, pytest.mark.apiserver, pytest.mark.timeout(240)]

PICKER = """
import asyncio, sys
from headrace_gateway import settings
from headrace_gateway.reports import status_reporter
from headrace_gateway.__main__ import main
status_reporter.SETTLE_SECONDS = 0.5
status_reporter.PASSING_SECONDS = 20  # in which an Envoy comes over from the picker that led before
ads, picks, http = map(int, sys.argv[1:4])
ports = {"ads_port": ads, "picks_port": picks, "peers_port": picks, "http_port": http}
chosen = settings.Settings((sys.argv[4],), *sys.argv[5:8], address=sys.argv[8], **ports)
asyncio.run(main(chosen))
"""


class World(Rig):
    """Two pickers with a Lease on two addresses, in front of one namespace; Envoy prefers neither."""

    def __init__(self, folder, apiserver, namespace):
        super().__init__(folder)
        self.apiserver, self.namespace, self.pickers = apiserver, namespace, {}

    def start(self):
        for address in ("127.0.0.1", "127.0.0.2"):
            arguments = [self.namespace, "picker", self.namespace, f"picker-{address}", address]
            ports = map(str, (self.ads_port, self.picks_port, self.http_port))
            with (self.folder / f"picker-{address}.log").open("ab") as log:
                self.pickers[address] = subprocess.Popen(
                    [sys.executable, "-c", PICKER, *ports, *arguments],
                    stderr=log,
                    env={**os.environ, "KUBECONFIG": str(self.apiserver.kubeconfig)},
                )
        self.start_envoy()

    def edit(self, document):
        ask_pickers(document, self.pickers)

    def stop(self):
        for picker in self.pickers.values():
            picker.kill()
            picker.wait()
        super().stop()


@pytest.fixture
async def api(apiserver):
    async with connected(apiserver) as api:
        yield api


@pytest.fixture
async def world(apiserver, api, tmp_path):
    namespace = f"status-{uuid.uuid4().hex[:8]}"
    await client.CoreV1Api(api).create_namespace({"metadata": {"name": namespace}})
    world = World(tmp_path, apiserver, namespace)
    yield world
    world.stop()


async def test_the_status_is_what_every_envoy_acknowledged_whoever_leads(world, api):
    custom, discovery = client.CustomObjectsApi(api), client.DiscoveryV1Api(api)
    place = (*GROUP, world.namespace, "llmroutes")
    await create_route(api, world.namespace)
    world.start()

    async def status():
        return (await custom.get_namespaced_custom_object(*place, "chat")).get("status") or {}

    async def reports(**wanted):
        told = await status()
        states = {each["type"]: each["status"] for each in told.get("conditions", ())}
        return {**told, **states} | wanted == {**told, **states}

    await until(lambda: reports(Accepted="True", Programmed="True", envoys=1, pods=[]), "it is programmed")
    slices = endpoint_slice(("10.0.0.1", {"ready": True}), ("10.0.0.2", {"ready": False}))
    del slices["metadata"]["namespace"]
    await discovery.create_namespaced_endpoint_slice(world.namespace, slices)
    await until(
        lambda: reports(pods=["pod-10.0.0.1", "pod-10.0.0.2"]), "engines that are not ready are known too"
    )
    version = (await custom.get_namespaced_custom_object(*place, "chat"))["metadata"]["resourceVersion"]

    async def leads(address):
        url = f"http://{address}:{world.picks_port}{names.LEADER_PATH}"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                return response.status == 200
        except aiohttp.ClientError:
            return False  # it does not listen yet

    async def leaders():
        found = [address for address in world.pickers if await leads(address)]
        return found if len(found) == 1 else None

    [leader] = await until(leaders, "one leads")
    [other] = world.pickers.keys() - {leader}
    gone = world.pickers.pop(leader)
    gone.kill()
    gone.wait()
    await until(lambda: leads(other), "the other leads")
    await asyncio.sleep(2.0)
    after = (await custom.get_namespaced_custom_object(*place, "chat"))["metadata"]["resourceVersion"]
    assert after == version  # it says the same, so there is nothing to write
    patch = {"spec": {"balancer": "Random"}}
    await custom.patch_namespaced_custom_object(
        *place, "chat", patch, _content_type="application/merge-patch+json"
    )
    await until(lambda: reports(observedGeneration=2, Programmed="True", envoys=1), "the new one reports")


async def test_a_forged_route_is_refused_in_its_status(world, api):
    custom = client.CustomObjectsApi(api)
    place = (*GROUP, world.namespace, "llmroutes")
    await create_route(api, world.namespace, "mine", owned=False)
    await create_route(api, world.namespace)
    world.start()

    async def refused():
        told = (await custom.get_namespaced_custom_object(*place, "mine")).get("status") or {}
        return any(each["reason"] == "Refused" for each in told.get("conditions", ()))

    await until(refused, "the route that nobody owns is refused")

    async def listed():
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{world.url}/v1/models") as response:
                return {model["id"] for model in (await response.json())["data"]}
        except aiohttp.ClientError:
            return set()  # Envoy listens when it has its first configuration

    await until(listed, "Envoy has routes")
    assert await listed() == {"chat", f"{world.namespace}/chat"}
