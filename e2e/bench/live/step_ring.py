"""The steps that the plugin's server tells of while something goes on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from e2e.bench.real_engine.vllm_server import Server
from headrace_engine.control import paths
from headrace_engine.control.records import STEPS, StepSample
from headrace_engine.control.ring import RingReader

POLL = 0.1  # seconds; the ring holds many more steps


@contextlib.asynccontextmanager
async def steps_of(server: Server) -> AsyncIterator[list[StepSample]]:
    """Fill the list with the server's steps from now on; it is whole when the context is left."""
    ring = RingReader(paths.stats_paths(server.shared).steps, STEPS)
    ring.drain()
    steps: list[StepSample] = []

    async def follow() -> None:
        while True:
            await asyncio.sleep(POLL)
            steps.extend(ring.drain())

    following = asyncio.create_task(follow())
    try:
        yield steps
    finally:
        await asyncio.sleep(POLL)
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        steps.extend(ring.drain())
        ring.close()
