"""HTTP for Prometheus and the kubelet: /metrics, /healthz, /readyz.

That it answers at all shows that the event loop turns. An outage of the API server fails no probe: a
restart would not mend it, and engines need no operator.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest


async def serve_probes(port: int, alive: Callable[[], bool], ready: Callable[[], bool]) -> web.AppRunner:
    """Start the server; the caller cleans the runner up."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def probe(check: Callable[[], bool]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handler(_: web.Request) -> web.Response:
            return web.Response(status=200 if check() else 503, text="ok\n" if check() else "failing\n")

        return handler

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", probe(alive))
    app.router.add_get("/readyz", probe(ready))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, None, port).start()
    return runner
