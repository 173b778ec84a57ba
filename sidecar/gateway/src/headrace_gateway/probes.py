"""What the kubelet and Prometheus ask a picker: `/healthz`, `/readyz`, `/metrics`."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from headrace_gateway import metrics
from headrace_gateway.names import service_labels
from headrace_gateway.pick.picker import Picker
from headrace_gateway.settings import Settings

NO_CATALOG = "waiting for the first whole list of services and engines"


async def start(settings: Settings, picker: Picker, lacks: Callable[[], str]) -> web.AppRunner:
    """Serve until the runner is cleaned up; `lacks` says what is missing to be ready, empty: nothing."""

    async def exposition(_request: web.Request) -> web.Response:
        _count_engines(picker)
        return web.Response(body=generate_latest(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def alive(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def ready(_request: web.Request) -> web.Response:
        missing = lacks()
        return web.Response(status=503, text=missing) if missing else web.Response(text="ok")

    app = web.Application()
    app.add_routes([web.get("/metrics", exposition), web.get("/healthz", alive), web.get("/readyz", ready)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, settings.address, settings.http_port).start()
    return runner


def _count_engines(picker: Picker) -> None:
    """Bring the gauge of engines up to date; services that are gone leave it."""
    metrics.ENGINES.clear()
    for service, fleet in picker.fleets.items():
        reporting = sum(endpoint.is_fresh(picker.clock()) for endpoint in fleet.endpoints.values())
        labels = service_labels(service)
        metrics.ENGINES.labels(*labels, "reporting").set(reporting)
        metrics.ENGINES.labels(*labels, "silent").set(len(fleet.endpoints) - reporting)
