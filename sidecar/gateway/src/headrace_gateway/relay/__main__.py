"""The relay: `python3 -m headrace_gateway.relay`, beside an Envoy."""

import contextlib
from pathlib import Path

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from headrace_gateway import names, process
from headrace_gateway.launch import launch
from headrace_gateway.relay.signing import Signer
from headrace_gateway.relay.streams import Relay
from headrace_gateway.settings import Settings, SettingsError

HOST = "127.0.0.1"  # Envoy's, in the same pod


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; raises SettingsError."""
    if not settings.gateway_key:
        raise SettingsError("HEADRACE_GATEWAY_KEY is not set: give the file with the gateway's private key")
    relay = Relay(f"http://{HOST}:{settings.engines_port}", Signer(Path(settings.gateway_key)))
    app = web.Application(client_max_size=settings.max_body_bytes)
    app.add_routes([web.get(names.HEALTH_PATH, _alive), web.post("/{path:.*}", relay.answer)])
    metrics = web.Application()
    metrics.add_routes([web.get("/metrics", _metrics), web.get(names.HEALTH_PATH, _alive)])
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(relay.session.close)
        for each, address, port in (
            (metrics, settings.address, settings.http_port),
            (app, HOST, settings.relay_port),
        ):
            # A client that leaves ends its request at the engine.
            runner = web.AppRunner(each, access_log=None, handler_cancellation=True)
            stack.push_async_callback(runner.cleanup)
            await runner.setup()
            await web.TCPSite(runner, address, port).start()
        await process.stop_signal()


async def _alive(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _metrics(_request: web.Request) -> web.Response:
    return web.Response(body=generate_latest(), headers={"content-type": CONTENT_TYPE_LATEST})


if __name__ == "__main__":
    launch(serve)
