"""Streams that wait at a full engine go on at another while `routing.rebalance` says so, patched live."""

import asyncio

import httpx
import pytest
from e2e_streams import Stream, await_relays, relayed

from e2e.demo import services
from e2e.demo.services import NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]

STREAMS = 4  # in turns to two engines, of which the other has room for all
# As many as an engine of the sample takes at once, for longer than the test takes.
FILL = """
import json, urllib.request
body = {"model": "chat", "prompt": "Once", "n": 8, "max_tokens": 1500, "ignore_eos": True}
request = urllib.request.Request(
    "http://127.0.0.1:8000/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"}
)
print(urllib.request.urlopen(request).status)
"""


async def test_streams_that_wait_move_while_they_may_and_all_are_answered_whole(stage):
    await_relays(stage)
    lives = stage.lives()
    stage.patch("chat", {"routing": {"balancer": "RoundRobin", "rebalance": "Never"}})
    full, _ = stage.pods("chat")
    async with httpx.AsyncClient(base_url=stage.url, timeout=300) as client:
        streams = [Stream(client, f"Story {number}:", 200) for number in range(STREAMS)]
        undisturbed = await asyncio.gather(*(stream.read() for stream in streams))
        before = {what: relayed(stage, what) for what in ("moved", "failed")}
        filling = asyncio.create_task(asyncio.to_thread(_fill, stage, full))
        await asyncio.to_thread(stage.until, lambda: _waiting(stage, full), 60, "requests that wait")
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


def _waiting(stage, pod):
    return stage.sidecar(pod, "/load")["waiting"]


def _fill(stage, pod):
    told = stage.kube("exec", pod["metadata"]["name"], "-n", NAMESPACE, "--", "python3", "-c", FILL)
    assert "200" in told
