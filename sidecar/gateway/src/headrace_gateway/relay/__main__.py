"""The relay: `python3 -m headrace_gateway.relay`, beside an Envoy.

HEADRACE_GATEWAY_KEY     the file with the gateway's private key
HEADRACE_MAX_BODY_BYTES  the largest request body
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import uvloop
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from headrace_gateway import names
from headrace_gateway.relay.server import Relay
from headrace_gateway.relay.signing import Signer

HOST = "127.0.0.1"  # Envoy's, in the same pod


@dataclass(frozen=True, slots=True)
class Settings:
    """What the chart decides, or a test."""

    key: Path
    max_body_bytes: int = 4 << 20
    port: int = 8082
    engines_port: int = 8083
    metrics_address: str = "0.0.0.0"  # noqa: S104  Prometheus comes from other pods
    metrics_port: int = 9091


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, and then until the last stream ends."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    relay = Relay(f"http://{HOST}:{settings.engines_port}", Signer(settings.key))
    app = web.Application(client_max_size=settings.max_body_bytes)
    app.add_routes([web.get(names.HEALTH_PATH, _alive), web.post("/{path:.*}", relay.answer)])
    metrics = web.Application()
    metrics.add_routes([web.get("/metrics", _metrics), web.get(names.HEALTH_PATH, _alive)])
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(relay.session.close)
        for each, address, port in (
            (metrics, settings.metrics_address, settings.metrics_port),
            (app, HOST, settings.port),
        ):
            # A client that leaves ends its request at the engine.
            runner = web.AppRunner(each, access_log=None, handler_cancellation=True)
            stack.push_async_callback(runner.cleanup)
            await runner.setup()
            await web.TCPSite(runner, address, port).start()
        await stop.wait()


async def _alive(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _metrics(_request: web.Request) -> web.Response:
    return web.Response(body=generate_latest(), headers={"content-type": CONTENT_TYPE_LATEST})


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Read the settings; raises ValueError, which names the variable."""
    key = environment.get("HEADRACE_GATEWAY_KEY", "")
    if not key:
        raise ValueError("HEADRACE_GATEWAY_KEY is not set: give the file with the gateway's private key")
    size = environment.get("HEADRACE_MAX_BODY_BYTES", "4194304")
    if not size.isdecimal() or int(size) == 0:
        raise ValueError(f"HEADRACE_MAX_BODY_BYTES={size!r}: give a whole number over 0")
    return Settings(Path(key), int(size))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        chosen = read_settings(os.environ)
    except ValueError as error:
        sys.exit(str(error))
    uvloop.run(serve(chosen))
