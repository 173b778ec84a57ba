"""How fast streams go on that stepped back, one after another, when engines have room again.

A thousand streams on 64 engines have had 1,000 tokens each when their engines hand all of them back, and have
no room for any. Once all came back every engine says that it has room: each stream in its turn has the picker
choose, and goes on at that engine, which answers at once. What is left is the gateway's own time: relay,
Envoy, picker and engines share the machine.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import aiohttp

from e2e.bench.continuation.signer import Signer
from e2e.bench.gateway.hands_back import PROMPT
from e2e.bench.gateway.settings import BALANCERS
from e2e.bench.gateway.testbed import Testbed, TestbedError, engine_addresses, start_testbed

ENGINES = 64
STREAMS = 1000
RATE = 100.0  # streams that begin in a second
_BODY = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": PROMPT}]}


async def measure(say: Callable[[str], None]) -> dict[str, float]:
    """Measure how long it takes from one stream's going on to the next's; TestbedError if one is lost."""
    with tempfile.TemporaryDirectory() as folder, start_testbed(Path(folder)) as under_test:
        await _start(under_test)
        ended = await _ask(under_test)
        moved = under_test.relay_metric("headrace_relay_streams_moved_total")
    if moved != STREAMS:
        raise TestbedError(f"{moved:g} of {STREAMS} streams stepped back and went on: see the relay's log")
    rounds = [1000 * (after - before) for before, after in pairwise(sorted(ended))]
    figures = {
        "going_on_ms": round(statistics.fmean(rounds), 2),
        "going_on_p99_ms": round(statistics.quantiles(rounds, n=100)[98], 2),
    }
    for key, value in figures.items():
        say(f"  {key:44}{value:10g}")
    return figures


async def _start(under_test: Testbed) -> None:
    addresses = engine_addresses(0, ENGINES)
    under_test.start_engines(f"hands_back:{STREAMS}", addresses)
    under_test.apply({"chat": (BALANCERS[0], addresses)}, resume=True, rebalance=True)
    key = under_test.folder / "private-key.pem"
    Signer().write(key)
    under_test.start_relay(key)
    under_test.start_picker()
    under_test.start_envoy()
    await under_test.ready(ENGINES)


async def _ask(under_test: Testbed) -> list[float]:
    """Have all streams answered; returns when each ended."""
    url = f"http://{under_test.gateway.host}:{under_test.gateway.port}/v1/chat/completions"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        tasks = []
        for _ in range(STREAMS):
            tasks.append(group.create_task(_stream(session, url)))
            await asyncio.sleep(1 / RATE)
    return [task.result() for task in tasks]


async def _stream(session: aiohttp.ClientSession, url: str) -> float:
    async with session.post(url, json=_BODY) as answer:
        if not (await answer.read()).endswith(b"data: [DONE]\n\n"):
            raise TestbedError(f"a stream ended early, with status {answer.status}")
        return time.monotonic()
