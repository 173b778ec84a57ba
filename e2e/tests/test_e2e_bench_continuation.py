"""Streams from two real engines, through Envoy, picker and relay: one is lost, and no client sees it."""

import asyncio

import pytest

from e2e.bench.continuation import features
from e2e.bench.continuation.rig import ADDRESSES, start_rig
from e2e.bench.continuation.study import all_whole, difference, prompts

UNDER_WAY = 5  # streams that an engine runs when it is killed, or more

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.envoy,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),  # torch's own, as the model is made
]


async def test_a_killed_engine_costs_no_stream_and_changes_no_answer(tmp_path):
    asked = [(name, prompt) for name in features.FEATURES for prompt in prompts(name, 1)]
    async with start_rig(tmp_path) as rig:
        victim, other = ADDRESSES
        whole = await all_whole(rig, rig.engines[other].url, asked)
        cut = asyncio.create_task(all_whole(rig, rig.url, asked))
        await rig.until_running(victim, lambda running: running >= UNDER_WAY)
        rig.engines[victim].kill()
        answers = await cut
        resumed = rig.testbed.relay_metric("headrace_relay_streams_resumed_total")
    assert [difference(*pair) for pair in zip(whole, answers, strict=True)] == [""] * len(asked)
    assert resumed >= UNDER_WAY / 2  # some may end as it is killed
