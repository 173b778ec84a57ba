"""Runs the sidecar until it is told to stop.

As a native sidecar it starts before the engine and ends after it: an engine that comes, goes and comes again
is normal life. On SIGTERM the streams end and the process is gone within a second.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn

from aiohttp import web
from prometheus_client import CollectorRegistry

from headrace_engine.control.paths import policy_path, resume_key_path, stats_paths, turn_group_path
from headrace_engine.control.records import FinishedRequest
from headrace_engine.policies import registry as policies
from headrace_sidecar.file_handover import FileHandover
from headrace_sidecar.handover import Handover
from headrace_sidecar.metrics import EngineMetrics, RequestMetrics
from headrace_sidecar.monitor import Monitor
from headrace_sidecar.probe import keep_probing
from headrace_sidecar.request_log import RequestLog
from headrace_sidecar.server import Sidecar, make_application
from headrace_sidecar.settings import Settings
from headrace_sidecar.stream import Broadcast
from headrace_sidecar.traffic_log import TrafficLog

log = logging.getLogger(__name__)

INTERVAL = 0.05  # seconds between looks, and so the shortest time between two lines of a load stream
AT_REST = 0.1  # the same while the engine has nothing to do; halves what this process costs then
STALLED_AFTER = 10.0  # seconds without a successful look before the liveness probe fails
CLOSING = 0.5  # seconds that open connections get at the end


class ObservationLoop:
    """Observes the engine again and again; `observed_at` is when it last succeeded."""

    def __init__(
        self, monitor: Monitor, handover: Handover, files: Sequence[FileHandover], broadcast: Broadcast
    ) -> None:
        self._monitor = monitor
        self._handover = handover
        self._files = files
        self._broadcast = broadcast
        self._failing = False
        self.observed_at = float("-inf")

    def is_alive(self) -> bool:
        """Tell whether the loop succeeded lately."""
        return time.monotonic() - self.observed_at < STALLED_AFTER

    def observe_once(self) -> None:
        """Observe once; a failure is logged when it begins and shows in the liveness probe if it lasts."""
        now = time.monotonic()
        try:
            self._handover.hand_over_new(now)
            for each in self._files:
                each.hand_over_new()
            self._monitor.observe(now)
            self._broadcast.offer(self._monitor.load, now)
        except Exception:
            if not self._failing:
                log.exception("looking at the engine failed")
            self._failing = True
        else:
            self._failing = False
            self.observed_at = now

    async def keep_observing(self) -> NoReturn:
        """Observe the engine again and again, for ever."""
        while True:
            self.observe_once()
            await asyncio.sleep(INTERVAL if self._monitor.engine.state == "Running" else AT_REST)


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError if the port can't be had."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopping = asyncio.create_task(stop.wait())
    async with run_sidecar(settings) as background:
        done, _ = await asyncio.wait({stopping, *background}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


@asynccontextmanager
async def run_sidecar(settings: Settings) -> AsyncIterator[list[asyncio.Task[NoReturn]]]:
    """Run a sidecar that serves; gives its background tasks, none of which ever ends but by an error."""
    registry = CollectorRegistry()
    requests = RequestMetrics(registry)
    request_log = RequestLog()
    traffic_log = TrafficLog()

    def finished(batch: Sequence[FinishedRequest]) -> None:
        if monitor.observed:
            requests.add(batch)
        request_log.add(batch)
        traffic_log.add(batch)

    handover = Handover(
        settings.policy_dir / "policy.json", policy_path(settings.root), policies.validate_document
    )
    resume_key, turn_group = (
        FileHandover(settings.policy_dir / path.name, path)
        for path in (resume_key_path(settings.root), turn_group_path(settings.root))
    )
    monitor = Monitor(stats_paths(settings.root), finished)
    registry.register(EngineMetrics(monitor, handover))
    broadcast = Broadcast()
    observations = ObservationLoop(monitor, handover, (resume_key, turn_group), broadcast)
    observations.observe_once()

    sidecar = Sidecar(
        monitor=monitor,
        handover=handover,
        turn_group=turn_group,
        broadcast=broadcast,
        requests=request_log,
        traffic=traffic_log,
        registry=registry,
        alive=observations.is_alive,
    )
    runner = web.AppRunner(make_application(sidecar), access_log=None, shutdown_timeout=CLOSING)
    await runner.setup()
    background = [
        asyncio.create_task(observations.keep_observing()),
        asyncio.create_task(keep_probing(monitor, settings.engine_url)),
    ]
    try:
        await web.TCPSite(runner, port=settings.port).start()
        log.info("serving on port %d, engine files in %s", settings.port, settings.root)
        yield background
    finally:
        for task in background:
            task.cancel()
        await asyncio.wait(background)
        broadcast.close()
        await runner.cleanup()
        monitor.close()
