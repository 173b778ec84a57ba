"""Parts die in mid-work: the rest goes on, nothing is lost that need not be, nothing else restarts."""

import asyncio

import pytest

from e2e.bench import faults, faults_plan
from e2e.bench.faults_cluster import Scene
from e2e.bench.faults_judge import broken
from e2e.cluster.cluster import Cluster
from e2e.demo import replay, services
from e2e.demo.kube import policy_applied
from e2e.demo.replay import Call, Progress
from e2e.demo.services import NAMESPACE
from e2e.demo.steps import Steps
from e2e.demo.target import SYSTEM_NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]


def steady(seconds, services=("chat", "code"), per_second=4):
    """Short requests to the services in turn, evenly."""
    return [
        Call(
            at=n / per_second,
            service=services[n % len(services)],
            prompt_tokens=50,
            output_tokens=30,
            text_seed=f"s{n}",
        )
        for n in range(seconds * per_second)
    ]


async def test_each_part_can_be_killed_under_load(stage):
    scene = Scene(stage.kube, Cluster(), stage.url)
    async with faults.campaign(scene, Steps(), seed=0) as running:
        await asyncio.to_thread(running.kill_parts, faults_plan.kills(seed=0, rounds=1))
        [_, of_code] = faults_plan.engines(seed=0, count=2)
        await asyncio.to_thread(running.kill_engines, [of_code])
    found = running.figures()
    assert broken(found) == []
    assert found["kills"] == len(faults_plan.PARTS) + 1
    assert found["requests_in_flight_at_kills"] > 0


async def test_a_dead_engine_restarts_in_its_pod_while_the_other_serves(stage, kill):
    victim, other = stage.pods("chat")
    kill(victim, "vllm")
    stage.until(lambda: stage.service("chat")["status"]["readyReplicas"] == 1, 180, "one replica told")
    samples = await replay.replay(stage.url, steady(3, services=["chat"]), Progress())
    assert [sample.error for sample in samples if sample.error] == []
    await asyncio.to_thread(stage.settled)
    assert {pod["metadata"]["uid"] for pod in stage.pods("chat")} == {
        pod["metadata"]["uid"] for pod in (victim, other)
    }
    assert _restarts(stage.kube.get(NAMESPACE, "pod", other["metadata"]["name"]), "engine") == _restarts(
        other, "engine"
    )


def test_a_policy_changed_while_the_operator_is_away_is_applied_when_it_is_back(stage):
    before = stage.lives()
    stage.kube("scale", "deployment/headrace-operator", "-n", SYSTEM_NAMESPACE, "--replicas=0")
    try:
        stage.until(lambda: not _pods(stage, "operator"), 180, "operator gone")
        stage.patch("chat", {"scheduling": {"policy": "LARRY"}})
        stage.patch("code", {"replicas": 1, "slo": {"ttft": "700ms"}})
        assert stage.complete("chat").status_code == 200
    finally:
        stage.kube("scale", "deployment/headrace-operator", "-n", SYSTEM_NAMESPACE, "--replicas=1")
    stage.until(lambda: policy_applied(stage.service("chat")), 300, "applied by the operator that came back")
    assert services.restarted(before, stage.lives()) == 0


def _pods(stage, name):
    return stage.kube.items(SYSTEM_NAMESPACE, "pods", f"app.kubernetes.io/component={name}")


def _restarts(pod, container):
    statuses = [*pod["status"].get("initContainerStatuses", ()), *pod["status"].get("containerStatuses", ())]
    return next(status["restartCount"] for status in statuses if status["name"] == container)
