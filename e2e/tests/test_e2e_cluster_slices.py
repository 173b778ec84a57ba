"""Answers of full engines step back for others while `scheduling.slice` says so, patched live."""

import asyncio

import httpx
import pytest
from e2e_streams import Stream, await_relays, fill, relayed

from e2e.demo import services

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]

STREAMS = 4  # in turns to two engines, of which one is full
PROMPT = 60  # times ten tokens, a quarter of all KV: what one answer gives up by itself is not enough
SLICE = 32  # tokens


async def test_streams_that_wait_go_first_while_slices_are_on_and_all_are_answered_whole(stage):
    lives = stage.lives()
    stage.patch("chat", {"routing": {"balancer": "RoundRobin", "rebalance": "Never"}})
    full, _ = stage.pods("chat")
    async with httpx.AsyncClient(base_url=stage.url, timeout=300) as client:
        streams = [Stream(client, PROMPT * f"Chapter {number}:", 200) for number in range(STREAMS)]
        undisturbed = await asyncio.gather(*(stream.read() for stream in streams))
        failed = relayed(stage, "failed")
        filling = await fill(stage, full)
        disturbed = [stream.start() for stream in streams]
        done, _ = await asyncio.wait(disturbed, timeout=60, return_when="FIRST_COMPLETED")
        assert 0 < len(done) < STREAMS
        await _schedule(stage, {"slice": {"tokens": SLICE}})
        assert await asyncio.gather(*disturbed) == undisturbed
        assert not filling.done()
        assert await asyncio.to_thread(_stepped_back, stage, full) > 0
        await _schedule(stage, {"slice": None})
        assert await asyncio.to_thread(_stepped_back, stage, full) == 0
        texts, tokens = await filling
    assert (len(texts), len(set(texts)), tokens) == (8, 1, 8 * 1500)
    assert relayed(stage, "failed") == failed
    assert services.restarted(lives, stage.lives()) == 0


async def test_streams_that_step_back_go_on_where_there_is_room_and_are_answered_whole(stage):
    await_relays(stage)
    lives = stage.lives()
    stage.patch("chat", {"routing": {"balancer": "RoundRobin", "rebalance": "Auto"}})
    await _schedule(stage, {"slice": {"tokens": SLICE}})
    async with httpx.AsyncClient(base_url=stage.url, timeout=300) as client:
        stream = Stream(client, "Once", 600)
        undisturbed = await stream.read()
        failed = relayed(stage, "failed")
        handed_back = relayed(stage, "moved", 'reason="SteppedBack"')
        # Half of them fill the KV of both engines.
        assert await asyncio.gather(*(stream.read() for _ in range(16))) == [undisturbed] * 16
    assert relayed(stage, "moved", 'reason="SteppedBack"') > handed_back
    assert relayed(stage, "failed") == failed
    stage.patch("chat", {"routing": {"rebalance": "Never"}})
    await _schedule(stage, {"slice": None})
    assert services.restarted(lives, stage.lives()) == 0


async def _schedule(stage, scheduling):
    await asyncio.to_thread(services.schedule, stage.kube, "chat", scheduling)


def _stepped_back(stage, pod):
    return stage.sidecar_metric(pod, 'headrace_policy_state{policy="FCFS",what="stepped_back"}')
