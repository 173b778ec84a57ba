"""A GPUPool on the running cluster: two services take turns, and nobody restarts as they begin and end to."""

import asyncio
import re

import aiohttp
import pytest

from e2e.bench import switch
from e2e.demo import services
from e2e.demo.kube import KubeError
from e2e.demo.services import NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]

POOL = {
    "apiVersion": "headrace.dev/v1alpha1",
    "kind": "GPUPool",
    "metadata": {"name": "shared", "namespace": NAMESPACE},
    "spec": {"groups": [{"name": "small", "members": ["chat", "code"]}]},
}
TELLING = 180  # seconds in which a kubelet brings a changed ConfigMap


def sidecar_metric(stage, pod, sample):
    """A sample of a sidecar's metrics; 0 where there is none."""
    place = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:9400/proxy/metrics"
    found = re.search(rf"^{re.escape(sample)} (\S+)$", stage.kube("get", "--raw", place), re.MULTILINE)
    return float(found[1]) if found else 0.0


def turns(stage):
    """By pod, how many turns its engine has taken."""
    pods = [pod for name in stage.samples for pod in stage.pods(name)]
    return {pod["metadata"]["name"]: sidecar_metric(stage, pod, "headrace_turns_total") for pod in pods}


def states(stage):
    """How each engine shares its GPU, as of its last step."""
    named = ("None", "InTurns", "Alone")
    return {
        state
        for name in stage.samples
        for pod in stage.pods(name)
        for state in named
        if sidecar_metric(stage, pod, f'headrace_turn_state{{state="{state}"}}')
    }


def is_ready(stage):
    conditions = stage.kube.get(NAMESPACE, "gpupool", "shared").get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def serving(stage):
    """One short answer from every service."""
    for name in stage.samples:
        for _ in stage.pods(name):
            assert stage.complete(name).status_code == 200


async def test_two_services_take_turns_while_they_serve_and_stop_when_their_pool_goes(stage, kill):
    before = stage.lives()
    undisturbed, shared = switch.Answers(), switch.Answers()
    async with aiohttp.ClientSession(stage.url) as session:
        await switch.clients(session, undisturbed, rounds=1)
        load = asyncio.create_task(switch.clients(session, shared))
        try:
            await asyncio.to_thread(stage.kube.apply, POOL)
            await asyncio.to_thread(stage.until, lambda: is_ready(stage), 120, "a turn server")
            await asyncio.to_thread(_take_turns, stage)
            [server] = stage.kube.items(NAMESPACE, "pods", "headrace.dev/gpu-pool=shared")
            await asyncio.to_thread(kill, server, "headrace_engine.turns")
            await asyncio.to_thread(_take_turns, stage)
            await asyncio.to_thread(stage.kube, "delete", "gpupool", "shared", "-n", NAMESPACE)
            await asyncio.to_thread(_stop, stage)
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
    assert undisturbed.errors == shared.errors == []
    assert switch.changed(undisturbed, shared) == 0
    assert services.restarted(before, stage.lives()) == 0


def _take_turns(stage):
    """Wait until every engine takes more turns than it has."""
    before = turns(stage)

    def all_take_turns():
        serving(stage)
        now = turns(stage)
        return states(stage) == {"InTurns"} and all(now[pod] > taken for pod, taken in before.items())

    stage.until(all_take_turns, TELLING, "turns of every engine")


def _stop(stage):
    """Wait until no engine is in a group."""

    def nobody_does():
        serving(stage)
        return states(stage) == {"None"}

    stage.until(nobody_does, TELLING, "engines without a group")


def test_a_member_of_two_groups_is_refused_with_field_and_fix(stage, refused):
    groups = [{"name": "a", "members": ["chat"]}, {"name": "b", "members": ["chat"]}]
    message = refused({**POOL, "spec": {"groups": groups}})
    assert "a service is in one group only: take it out of the others" in message
    with pytest.raises(KubeError):
        stage.kube.get(NAMESPACE, "gpupool", "shared")
