"""The sidecar's HTTP side, for picker, operator, Prometheus, probes and people.

Only GET, no parameters, nothing that changes anything. Every answer comes from memory. Finished requests are
for readers inside the pod alone.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from headrace_engine.contracts import EngineStatus, PolicyDocument, dumps
from headrace_engine.cost.fit import cost_numbers
from headrace_engine.policies import registry as policies
from headrace_sidecar.file_handover import FileHandover
from headrace_sidecar.handover import Handover
from headrace_sidecar.monitor import Monitor
from headrace_sidecar.reports import applied_hash, applied_policy, prediction_state
from headrace_sidecar.request_log import RequestLog
from headrace_sidecar.stream import Broadcast
from headrace_sidecar.traffic_log import TrafficLog

POLICY_SCHEMA = PolicyDocument(policy="").schema
DECIDED_AFTER = 1.0  # seconds; an engine looks for a new document ten times a second
LOG_SECONDS = 60.0  # seconds for a reader to take the log of finished requests, some MiB
LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
RUNTIME_VERSION = metadata.version("headrace-engine")


@dataclass(frozen=True, slots=True)
class Sidecar:
    """What the handlers answer from. `alive` says whether the monitor still looks."""

    monitor: Monitor
    handover: Handover
    turn_group: FileHandover
    broadcast: Broadcast
    requests: RequestLog
    traffic: TrafficLog
    registry: CollectorRegistry
    alive: Callable[[], bool]


def make_application(sidecar: Sidecar) -> web.Application:
    """Make the HTTP application, with all routes of this sidecar."""

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"content-type": "application/x-ndjson", "cache-control": "no-store"}
        )
        await response.prepare(request)
        try:
            await sidecar.broadcast.feed(response)
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
        return response

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(sidecar.registry), headers={"content-type": CONTENT_TYPE_LATEST}
        )

    async def healthz(_: web.Request) -> web.Response:
        if sidecar.alive():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the engine's files have not been looked at for a while\n")

    async def readyz(_: web.Request) -> web.Response:
        if sidecar.handover.given or sidecar.handover.refusal:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="there is no policy document yet\n")

    app = web.Application()
    for path, handler in (
        ("/load", functools.partial(_document, lambda: sidecar.monitor.load)),
        ("/load/stream", stream),
        ("/cost", functools.partial(_cost, sidecar.monitor)),
        ("/requests", functools.partial(_finished_requests, sidecar.requests)),
        ("/status", functools.partial(_document, lambda: engine_status(sidecar, time.monotonic()))),
        ("/traffic", functools.partial(_document, lambda: sidecar.traffic.last_hour(time.time()))),
        ("/metrics", metrics),
        ("/healthz", healthz),
        ("/readyz", readyz),
    ):
        app.router.add_get(path, handler)
    return app


def engine_status(sidecar: Sidecar, now: float) -> EngineStatus:
    """Make the status that the operator gets; `now` on the clock of `Monitor.observe`."""
    monitor, handover = sidecar.monitor, sidecar.handover
    decided = handover.given if now - handover.given_at >= DECIDED_AFTER else ""
    name = handover.policy_name(applied_hash(monitor.record))
    return EngineStatus(
        runtime_version=RUNTIME_VERSION,
        policies=policies.policy_names(),
        policy_schema=POLICY_SCHEMA,
        engine=monitor.engine,
        policy=applied_policy(monitor.record, name, decided, handover.refusal),
        prediction=prediction_state(monitor.record),
        turn_group=sidecar.turn_group.given_hash,
        without_turns=monitor.is_without_turns(now),
    )


async def _cost(monitor: Monitor, _: web.Request) -> web.Response:
    """Tell how long this engine's steps take, by its live fit."""
    if (found := monitor.cost) is None:
        return web.Response(status=503, text="too few steps with prompts yet\n")
    return web.json_response(cost_numbers(found))


async def _finished_requests(log: RequestLog, request: web.Request) -> web.StreamResponse:
    """Stream the log of finished requests, to callers in the pod only: who asked how much is not for all."""
    if request.remote not in LOOPBACK:
        return web.Response(
            status=403,
            text="only from inside the pod: use kubectl port-forward, which needs its permission\n",
        )
    response = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
    async with asyncio.timeout(LOG_SECONDS):
        await response.prepare(request)
        for portion in log.portions():
            await response.write(portion.encode())
            await asyncio.sleep(0)  # a write that does not wait lets nobody else run
    return response


async def _document(make: Callable[[], object], _: web.Request) -> web.Response:
    return web.Response(text=dumps(make()), content_type="application/json")
