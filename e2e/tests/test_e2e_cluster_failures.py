"""Parts die in mid-work: the rest goes on, nothing is lost that need not be, nothing else restarts."""

import asyncio

import httpx
import pytest
from e2e_streams import Stream, await_relays, relayed

from e2e.demo import replay, services
from e2e.demo.kube import policy_applied
from e2e.demo.replay import Call, Progress
from e2e.demo.services import NAMESPACE
from e2e.demo.target import SYSTEM_NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]


def component(stage, name):
    """Of several pods the first by name."""
    alive = [pod for pod in _pods(stage, name) if "deletionTimestamp" not in pod["metadata"]]
    return min(alive, key=lambda pod: pod["metadata"]["name"])


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


async def under_load(stage, deed):
    """Do the deed (blocking, in a thread) while a steady load goes on, and for seconds after; its samples."""
    progress = Progress()
    first = asyncio.create_task(replay.replay(stage.url, steady(2), progress))
    await asyncio.to_thread(stage.until, lambda: progress.samples, 60, "an answer")
    done = asyncio.create_task(asyncio.to_thread(deed))
    await first
    while not done.done():
        await replay.replay(stage.url, steady(1), progress)
    await replay.replay(stage.url, steady(6), progress)
    await done
    return progress.samples


@pytest.mark.parametrize(
    ("name", "process"),
    [("operator", "headrace_operator"), ("picker", "headrace_gateway")],
)
async def test_without_operator_or_picker_requests_flow_and_engines_stay(stage, kill, name, process):
    before, pod = stage.lives(), component(stage, name)
    samples = await under_load(stage, lambda: kill(pod, process))
    assert [sample.error for sample in samples if sample.error] == []
    assert stage.lives() == before

    def back():
        same = component(stage, name)
        return _restarts(same, name) > _restarts(pod, name) and _ready(same)

    stage.until(back, 180, f"{name} is back")
    stage.settled()


async def test_a_dead_sidecar_costs_no_request_and_restarts_alone(stage, kill):
    pod = stage.pods("chat")[0]
    engine_before = _restarts(pod, "engine")
    samples = await under_load(stage, lambda: kill(pod, "headrace_sidecar.engine serve"))
    assert [sample.error for sample in samples if sample.error] == []

    def back():
        [same] = [p for p in stage.pods("chat") if p["metadata"]["uid"] == pod["metadata"]["uid"]]
        return same if _restarts(same, "headrace-sidecar") > _restarts(pod, "headrace-sidecar") else None

    same = stage.until(back, 180, "the sidecar restarted")
    assert _restarts(same, "engine") == engine_before
    await asyncio.to_thread(stage.settled)
    services.schedule(stage.kube, "chat", {"policy": "LARRY"})  # which the new sidecar hands over


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


async def test_streams_of_a_dead_engine_go_on_at_the_other(stage, kill):
    await_relays(stage)
    victim, _ = stage.pods("chat")
    before = relayed(stage, "resumed")
    async with httpx.AsyncClient(base_url=stage.url, timeout=300) as client:
        streams = [Stream(client, f"Story {number}:", 200) for number in range(8)]
        undisturbed = await asyncio.gather(*(stream.read() for stream in streams))
        disturbed = [stream.start() for stream in streams]
        await asyncio.gather(*(stream.under_way.wait() for stream in streams))
        await asyncio.to_thread(kill, victim, "vllm")
        assert await asyncio.gather(*disturbed) == undisturbed
    assert relayed(stage, "resumed") > before


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


def _ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def _restarts(pod, container):
    statuses = [*pod["status"].get("initContainerStatuses", ()), *pod["status"].get("containerStatuses", ())]
    return next(status["restartCount"] for status in statuses if status["name"] == container)
