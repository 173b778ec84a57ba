"""A GPUPool on the running cluster: two services take turns, and nobody restarts as they begin and end to.

Services that ask for a device share one: it is a stand-in, as these engines run on the CPU.
"""

import asyncio

import aiohttp
import pytest

from e2e.bench import switch
from e2e.cluster import stand_in_device
from e2e.cluster.cluster import Cluster
from e2e.demo import services
from e2e.demo.kube import KubeError
from e2e.demo.pools import auto_pool, on_a_device
from e2e.demo.services import NAMESPACE
from e2e.demo.target import SYSTEM_NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]


def pool(name, *members):
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"groups": [{"name": "small", "members": list(members)}]},
    }


POOL = pool("shared", "chat", "code")
TELLING = 30  # seconds; a kubelet that is not told to look takes up to 90


def turns(stage):
    """By pod, how many turns its engine has taken."""
    pods = [pod for name in stage.samples for pod in stage.pods(name)]
    return {pod["metadata"]["name"]: stage.sidecar_metric(pod, "headrace_turns_total") for pod in pods}


def states(stage):
    """How each engine shares its GPU, as of its last step."""
    named = ("None", "InTurns", "Alone")
    return {
        state
        for name in stage.samples
        for pod in stage.pods(name)
        for state in named
        if stage.sidecar_metric(pod, f'headrace_turn_state{{state="{state}"}}')
    }


def condition(stage, pool, kind):
    """Status, reason and message of a pool's condition; empty before it has any."""
    conditions = stage.kube.get(NAMESPACE, "gpupool", pool).get("status", {}).get("conditions", ())
    told = next((each for each in conditions if each["type"] == kind), {})
    return tuple(told.get(key, "") for key in ("status", "reason", "message"))


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
            await asyncio.to_thread(
                stage.until, lambda: condition(stage, "shared", "Ready")[0] == "True", 120, "a turn server"
            )
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


def test_a_pool_says_who_should_share_by_what_its_engines_were_asked(stage):
    """As if the engines had GPUs: no step times are known for this node."""
    serving(stage)
    asked = [{"name": name, "costModel": "llama-3-8b"} for name in stage.samples]
    placement = {"gpus": {"type": "H100"}, "services": asked}
    stage.kube.apply({**POOL, "spec": {"placement": placement}})
    try:
        stage.until(lambda: condition(stage, "shared", "Planned")[:2] == ("True", "PlanMade"), 180, "a plan")
        plan = stage.kube.get(NAMESPACE, "gpupool", "shared")["status"]["plan"]
    finally:
        stage.kube("delete", "gpupool", "shared", "-n", NAMESPACE)
    assert plan["gpus"] < plan["gpusToday"] == sum(len(stage.pods(name)) for name in stage.samples)
    assert {each["name"] for each in plan["services"] if each["requests"]} == set(stage.samples)
    assert "by turns on 1 x H100" in plan["message"]


def test_a_member_of_two_groups_is_refused_with_field_and_fix(stage, refused):
    groups = [{"name": "a", "members": ["chat"]}, {"name": "b", "members": ["chat"]}]
    message = refused({**POOL, "spec": {"groups": groups}})
    assert "a service is in one group only: take it out of the others" in message
    with pytest.raises(KubeError):
        stage.kube.get(NAMESPACE, "gpupool", "shared")


@pytest.fixture
def pair(stage):
    """Two services that ask for a device and say what they take of it; nothing is left of them.

    One replica of `chat` makes room: the cluster's pods share 8 GiB, and engines need most as they start.
    """
    stage.patch("chat", {"replicas": 1})
    stage.settled()
    made = {name: on_a_device(stage.samples["code"], name) for name in ("left", "right")}
    yield made
    stage.kube("delete", "gpupool", "pair", "-n", NAMESPACE, "--ignore-not-found")
    for name in made:
        stage.kube("delete", "llmservice", name, "-n", NAMESPACE, "--ignore-not-found")


def devices(stage):
    """By claim, the devices that it has, and the pods that share them."""
    found = {}
    for claim in stage.kube.items(NAMESPACE, "resourceclaims"):
        status = claim.get("status", {})
        results = status.get("allocation", {}).get("devices", {}).get("results", ())
        pods = sorted(each["name"].rsplit("-", 2)[0] for each in status.get("reservedFor", ()))
        found[tuple(each["device"] for each in results)] = pods
    return found


async def test_services_are_moved_to_one_device_and_back_and_no_answer_is_lost(stage, pair):
    """As if the devices were H100s, of which one is free; the operator ends in the middle."""
    for name in stage.samples:
        stage.patch(name, {"replicas": 0})  # their memory
    stand_in_device.offer(Cluster(), 3)
    for made in pair.values():
        made["spec"]["disruption"] = {"drainTimeout": "30s"}
        stage.kube.apply(made)
    services.wait_ready(stage.kube, pair, 300, print)
    assert devices(stage).keys() == {("device-0",), ("device-1",)}
    answers = []
    load = [asyncio.create_task(_ask(stage, name, answers)) for name in pair]
    try:
        await asyncio.to_thread(_move_to_one_device, stage, pair)
        placed = stage.kube.get(NAMESPACE, "gpupool", "pair")["status"]["placement"]["services"]
        for name in pair:  # without the pool nobody knows which devices are free
            stage.patch(name, {"disruption": {"maxSurge": 1, "maxUnavailable": 0}})
        await asyncio.to_thread(stage.kube, "delete", "gpupool", "pair", "-n", NAMESPACE)
        await asyncio.to_thread(
            stage.until,
            lambda: sorted(devices(stage).values()) == [["left"], ["right"]],
            300,
            "a device of its own for each",
        )
    finally:
        for task in load:
            task.cancel()
        await asyncio.gather(*load, return_exceptions=True)
    assert set(answers) == {200}
    assert [(each["name"], each["group"]) for each in placed] == [("left", "auto-1"), ("right", "auto-1")]


async def _ask(stage, name, answers):
    while True:
        answers.append((await asyncio.to_thread(stage.complete, name)).status_code)
        await asyncio.sleep(0.5)  # engines start on the same cores


def _move_to_one_device(stage, pair):
    stage.kube.apply(auto_pool("pair", {"type": "H100", "count": 3}, dict.fromkeys(pair, "qwen3-14b")))
    stage.until(lambda: condition(stage, "pair", "AsPlanned")[1] == "Moving", 180, "a move")
    operators = "app.kubernetes.io/component=operator"
    stage.kube("delete", "pods", "-n", SYSTEM_NAMESPACE, "-l", operators, "--wait=false")
    stage.until(
        lambda: condition(stage, "pair", "AsPlanned")[1] == "NothingToMove", 420, "services as planned"
    )
    stage.until(
        lambda: list(devices(stage).values()) == [["left", "pair-auto-1-turns", "right"]],
        120,
        "all three pods on one device",
    )
