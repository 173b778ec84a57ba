"""A change that needs new pods: the old one finishes the streams that it has, the new one takes over."""

import asyncio
import time

import pytest

from e2e.demo import replay
from e2e.demo.replay import Call, Progress

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

STREAMS = 8  # at once: enough to make each long


async def test_streams_outlive_the_rollout_of_their_pod(stage):
    [old] = stage.pods("code")
    progress = Progress()
    calls = [
        Call(at=0.0, service="code", prompt_tokens=60, output_tokens=900, text_seed=f"long-{number}")
        for number in range(STREAMS)
    ]
    streams = asyncio.create_task(replay.replay(stage.url, calls, progress))
    await asyncio.to_thread(
        stage.until, lambda: progress.in_flight["code"] == STREAMS, 10, "all streams sent"
    )
    await asyncio.to_thread(_roll, stage)
    await asyncio.to_thread(stage.until, lambda: _gone(stage, old), 30, "the old pod is told to stop")
    assert progress.in_flight["code"], "the streams ended before the rollout began: nothing was tested"
    samples = await streams
    assert [sample.error for sample in samples] == [""] * STREAMS
    await asyncio.to_thread(stage.settled)
    [new] = stage.pods("code")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert stage.complete("code").status_code == 200


def _roll(stage):
    variables = stage.samples["code"]["spec"]["engine"]["env"]
    change = {"name": "HEADRACE_TEST_ROLLOUT", "value": str(time.time_ns())}
    stage.patch("code", {"engine": {"env": [*variables, change]}})


def _gone(stage, pod):
    return pod["metadata"]["uid"] not in {alive["metadata"]["uid"] for alive in stage.pods("code")}
