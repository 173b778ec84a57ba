"""Asks vLLM's own HTTP server, but only while the plugin says nothing.

The board tells more for less. Without one, whether the server answers separates an engine that still loads
from one that serves with vLLM's own scheduler; of such an engine, vLLM's metrics tell the load.
"""

from __future__ import annotations

import asyncio
import time
from typing import NoReturn
from urllib.parse import urlsplit

from headrace_engine.contracts.fetch import MOST_BYTES, fetch
from headrace_sidecar.monitor import Monitor
from headrace_sidecar.stock import read_stock_load
from headrace_sidecar.stock_speed import StockSpeed

INTERVAL = 1.0
TIMEOUT_SECONDS = 2.0  # seconds
MOST_METRICS_BYTES = 2 << 20  # twenty times vLLM's own page
SILENT_STATES = ("Starting", "Gone", "Stock")


async def keep_probing(monitor: Monitor, engine_url: str) -> NoReturn:
    """Keep `monitor.answering` true while the engine's server answers, and `monitor.stock` its load."""
    speed = StockSpeed()
    while True:
        silent = monitor.engine.state in SILENT_STATES
        monitor.answering = silent and await get_page(engine_url, "/health") is not None
        stock = monitor.answering and monitor.engine.state == "Stock"
        page = await get_page(engine_url, "/metrics", MOST_METRICS_BYTES) if stock else None
        monitor.stock = None if page is None else read_stock_load(page, time.time(), speed)
        await asyncio.sleep(INTERVAL)


async def get_page(engine_url: str, path: str, most: int = MOST_BYTES) -> str | None:
    """Get what is there; None if nothing answers, not with 200, or with more than `most` bytes."""
    engine = urlsplit(engine_url)
    try:
        answer = await fetch(
            engine.hostname or "", engine.port or 80, path, most=most, seconds=TIMEOUT_SECONDS
        )
    except OSError:
        return None
    return answer.decode(errors="replace")
