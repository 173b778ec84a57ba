"""A pod that is stopped: its streams go on at another like it, or it finishes them before it ends.

Where it finishes them, they must last until it is told to stop, and end within the service's `drainTimeout`.
One batch is timed first, so that as many are sent as the engine of this machine answers in TARGET seconds.
"""

import asyncio
import math
import time

import httpx
import pytest
from e2e_streams import Stream, await_relays, relayed

from e2e.demo import replay
from e2e.demo.replay import Call, Progress
from e2e.demo.services import NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]

BATCH = 3  # streams that the KV cache has room for at once
STREAMS = 16  # more than two KV caches hold at once, so that the last are waiting when the pod is deleted
TARGET = 15.0  # seconds; the samples' drainTimeout is 60


async def test_streams_outlive_the_rollout_of_their_pod(stage):
    [old] = stage.pods("code")
    began = time.monotonic()
    await replay.replay(stage.url, _streams(BATCH), Progress())
    count = BATCH * math.ceil(TARGET / (time.monotonic() - began))

    progress = Progress()
    streams = asyncio.create_task(replay.replay(stage.url, _streams(count), progress))
    await asyncio.to_thread(stage.until, lambda: progress.in_flight["code"] == count, 30, "all streams sent")
    await asyncio.to_thread(_roll, stage)
    await asyncio.to_thread(stage.until, lambda: _gone(stage, old), 60, "the old pod is told to stop")
    assert progress.in_flight["code"], "the streams ended before the rollout began: nothing was tested"
    samples = await streams
    assert [sample.error for sample in samples] == [""] * count
    await asyncio.to_thread(stage.settled)
    [new] = stage.pods("code")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert stage.complete("code").status_code == 200


async def test_streams_leave_a_deleted_pod_and_go_on_at_the_other(stage):
    await_relays(stage)
    victim, _ = stage.pods("chat")
    before = {what: relayed(stage, what) for what in ("moved", "resumed", "failed")}
    async with httpx.AsyncClient(base_url=stage.url, timeout=300) as client:
        streams = [Stream(client, f"Story {number}:", 500) for number in range(STREAMS)]
        undisturbed = await asyncio.gather(*(stream.read() for stream in streams))
        disturbed = [stream.start() for stream in streams]
        await asyncio.wait(
            [asyncio.create_task(stream.under_way.wait()) for stream in streams],
            return_when="FIRST_COMPLETED",
        )
        name = victim["metadata"]["name"]
        await asyncio.to_thread(stage.kube, "delete", "pod", name, "-n", NAMESPACE, "--wait=false")
        assert await asyncio.gather(*disturbed) == undisturbed
    assert relayed(stage, "moved") > before["moved"]
    assert [relayed(stage, what) for what in ("resumed", "failed")] == [before["resumed"], before["failed"]]


def _streams(count):
    return [
        Call(at=0.0, service="code", prompt_tokens=60, output_tokens=600, text_seed=f"long-{number}")
        for number in range(count)
    ]


def _roll(stage):
    variables = stage.samples["code"]["spec"]["engine"]["env"]
    change = {"name": "HEADRACE_TEST_ROLLOUT", "value": str(time.time_ns())}
    stage.patch("code", {"engine": {"env": [*variables, change]}})


def _gone(stage, pod):
    return pod["metadata"]["uid"] not in {alive["metadata"]["uid"] for alive in stage.pods("code")}
