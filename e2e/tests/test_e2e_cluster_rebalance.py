"""Streams that wait at a full engine go on at another while `routing.rebalance` says so, patched live."""

import asyncio

import httpx
import pytest
from e2e_streams import Stream, await_relays, fill, relayed

from e2e.demo import services

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]

STREAMS = 4  # in turns to two engines, of which the other has room for all


async def test_streams_that_wait_move_while_they_may_and_all_are_answered_whole(stage):
    await_relays(stage)
    lives = stage.lives()
    stage.patch("chat", {"routing": {"balancer": "RoundRobin", "rebalance": "Never"}})
    full, _ = stage.pods("chat")
    async with httpx.AsyncClient(base_url=stage.url, timeout=300) as client:
        streams = [Stream(client, f"Story {number}:", 200) for number in range(STREAMS)]
        undisturbed = await asyncio.gather(*(stream.read() for stream in streams))
        before = {what: relayed(stage, what) for what in ("moved", "failed")}
        filling = await fill(stage, full)
        disturbed = [stream.start() for stream in streams]
        done, _ = await asyncio.wait(disturbed, timeout=60, return_when="FIRST_COMPLETED")
        assert 0 < len(done) < STREAMS
        assert relayed(stage, "moved") == before["moved"]
        await asyncio.to_thread(stage.patch, "chat", {"routing": {"rebalance": "Auto"}})
        assert await asyncio.gather(*disturbed) == undisturbed
        await asyncio.to_thread(stage.patch, "chat", {"routing": {"rebalance": "Never"}})
        await filling
    assert relayed(stage, "moved") > before["moved"]
    assert relayed(stage, "failed") == before["failed"]
    assert services.restarted(lives, stage.lives()) == 0
