"""Asks vLLM's own HTTP server whether it is healthy, but only while the plugin says nothing.

The board tells more for less. Without one, the answer separates an engine that still loads from one that
serves with vLLM's own scheduler.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

import aiohttp

from headrace_sidecar.engine.monitor import Monitor

INTERVAL = 1.0
PATIENCE = aiohttp.ClientTimeout(total=2.0)
SILENT_STATES = ("Starting", "Gone", "Stock")


async def keep_asking(monitor: Monitor, engine_url: str) -> NoReturn:
    """Keep `monitor.answering` true as long as the engine's server answers."""
    async with aiohttp.ClientSession(timeout=PATIENCE) as session:
        while True:
            asked = monitor.engine.state in SILENT_STATES
            monitor.answering = asked and await _healthy(session, f"{engine_url}/health")
            await asyncio.sleep(INTERVAL)


async def _healthy(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
