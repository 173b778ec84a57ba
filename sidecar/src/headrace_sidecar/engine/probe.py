"""Asks vLLM's own HTTP server, but only while the plugin says nothing.

The board tells more for less. Without one, whether the server answers separates an engine that still loads
from one that serves with vLLM's own scheduler; of such an engine, vLLM's metrics tell the load.
"""

from __future__ import annotations

import asyncio
import time
from typing import NoReturn

import aiohttp

from headrace_sidecar.engine.monitor import Monitor
from headrace_sidecar.engine.stock import stock_load

INTERVAL = 1.0
PATIENCE = aiohttp.ClientTimeout(total=2.0)
SILENT_STATES = ("Starting", "Gone", "Stock")


async def keep_asking(monitor: Monitor, engine_url: str) -> NoReturn:
    """Keep `monitor.answering` true while the engine's server answers, and `monitor.stock` its load."""
    async with aiohttp.ClientSession(timeout=PATIENCE) as session:
        while True:
            silent = monitor.engine.state in SILENT_STATES
            monitor.answering = silent and await _ask(session, f"{engine_url}/health") is not None
            stock = monitor.answering and monitor.engine.state == "Stock"
            page = await _ask(session, f"{engine_url}/metrics") if stock else None
            monitor.stock = None if page is None else stock_load(page, time.time())
            await asyncio.sleep(INTERVAL)


async def _ask(session: aiohttp.ClientSession, url: str) -> str | None:
    """What is there; None if nothing answers, or not with 200."""
    try:
        async with session.get(url) as response:
            return await response.text() if response.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, UnicodeDecodeError):
        return None
