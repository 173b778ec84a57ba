"""The relay: `python3 -m headrace_gateway.relay`, beside an Envoy."""

import contextlib
from pathlib import Path

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from headrace_gateway import names
from headrace_gateway.launch import launch
from headrace_gateway.process import stop_signal
from headrace_gateway.relay import relay_metrics
from headrace_gateway.relay.limits import Delay, Held
from headrace_gateway.relay.signing import Signer
from headrace_gateway.relay.streams import Relay
from headrace_gateway.settings import Settings, SettingsError

BASE_BYTES = 256 << 20  # of memory, for all but bodies
READING_FACTOR = 25  # of its size that a body takes while it is read as JSON


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; raises SettingsError."""
    if not settings.gateway_key:
        raise SettingsError("HEADRACE_GATEWAY_KEY is not set: give the file with the gateway's private key")
    folder, delay, largest = Path(settings.relay_folder), Delay(), settings.max_body_bytes
    held = Held(settings.memory_bytes - BASE_BYTES - READING_FACTOR * largest, largest)
    relay = Relay(str(folder / names.ENGINES_SOCKET), Signer(Path(settings.gateway_key)), held)
    relay_metrics.DELAY.set_function(lambda: delay.seconds)
    relay_metrics.HELD_BYTES.set_function(lambda: held.bytes)

    async def has_time(_request: web.Request) -> web.Response:
        return web.Response(status=503, text="late") if delay.is_late else web.Response(text="ok")

    app, probes = web.Application(), web.Application()
    app.add_routes([web.get(names.HEALTH_PATH, has_time), web.post("/{path:.*}", relay.answer)])
    probes.add_routes([web.get("/metrics", _metrics), web.get("/healthz", _alive)])
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(relay.session.close)
        await stack.enter_async_context(delay.follow())
        await stack.enter_async_context(relay.moves.follow(relay.surpluses))
        for each, listen in (
            (probes, lambda runner: web.TCPSite(runner, settings.address, settings.http_port)),
            (app, lambda runner: web.UnixSite(runner, str(folder / names.RELAY_SOCKET))),
        ):
            # A client that leaves ends its request at the engine.
            runner = web.AppRunner(each, access_log=None, handler_cancellation=True)
            stack.push_async_callback(runner.cleanup)
            await runner.setup()
            await listen(runner).start()
        await stop_signal()


async def _alive(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _metrics(_request: web.Request) -> web.Response:
    return web.Response(body=generate_latest(), headers={"content-type": CONTENT_TYPE_LATEST})


if __name__ == "__main__":
    launch(serve)
