"""`python3 -m headrace_operator`: settings from the environment, then watches, workers and probes."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Collection, Iterable
from contextlib import AsyncExitStack
from typing import Any

import kopf

from headrace_operator.api import Key
from headrace_operator.errors import ApiError
from headrace_operator.kube import handlers
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.client import ApiCluster, connect
from headrace_operator.kube.event_recorder import EventRecorder
from headrace_operator.kube.lease import Lease, run_election
from headrace_operator.kube.resync import fill_cache, resync
from headrace_operator.names import FIELD_MANAGER
from headrace_operator.run import health
from headrace_operator.run.gateway_key import GatewayKey
from headrace_operator.run.pool_planner import PoolPlanner, answer_in_process, fetch_traffic
from headrace_operator.run.reconcile import Reconciler
from headrace_operator.run.sidecar_status import SidecarStatuses, fetch_status
from headrace_operator.run.workers import Workers
from headrace_operator.run.workqueue import WorkQueue
from headrace_operator.settings import Settings, read_settings

# Named, because kopf's default asks for the user's name and a pod's user has none.
_IDENTITY: Any = FIELD_MANAGER
_PASSING = {0, 429}  # codes of an outage, besides 5xx
_RETRY_SECONDS = 5.0  # seconds
_ENDING = 20.0  # seconds; the kubelet waits for 30
_CANCEL_AGAIN = 0.3  # seconds; less than kopf waits between two watches

logger = logging.getLogger(__name__)


async def operate(settings: Settings) -> None:
    """Run the operator until it is cancelled or a part of it ends."""
    cache, queue, ready = Cache(), WorkQueue[Key](), asyncio.Event()
    identity = settings.pod or f"{socket.gethostname()}-{uuid.uuid4()}"
    lease = Lease(settings.system_namespace, settings.lease, identity, time.monotonic)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(connect(lease.seconds_left))
        sidecars = SidecarStatuses(fetch_status, on_change=queue.add)
        stack.push_async_callback(sidecars.stop)
        planner = PoolPlanner(fetch_traffic, answer_in_process, on_change=queue.add)
        stack.push_async_callback(planner.stop)
        key = GatewayKey(settings.system_namespace, settings.gateway_key)
        reconciler = Reconciler(
            settings,
            cache,
            cluster,
            sidecars,
            EventRecorder(cluster),
            time.monotonic,
            key,
            queue.add,
            planner,
        )

        async def look_for_missed(every: bool) -> None:
            another_key = await key.refresh(cluster)
            await resync(cache, cluster, queue.add, settings, all_keys=every or another_key)

        workers = Workers(queue, reconciler.reconcile, look_for_missed)
        runner = await health.serve_probes(settings.metrics_port, lambda: workers.alive, ready.is_set)
        stack.push_async_callback(runner.cleanup)
        await _fill(cache, cluster, settings)

        async def stop() -> None:
            await workers.stop()
            await reconciler.stop_writing()

        # Not `kopf.operator`: when a watch fails, that cancels our tasks too and waits for others for ever.
        watches = await kopf.spawn_tasks(
            registry=_registry(cache, queue),
            standalone=True,
            identity=_IDENTITY,
            clusterwide=not settings.watch_namespaces,
            namespaces=settings.watch_namespaces,
            ready_flag=ready,
        )
        leading = asyncio.create_task(run_election(lease, cluster, workers.start, stop), name="lead")
        try:
            await _run_until_one_ends([leading, *watches])
        finally:
            await _end(leading, watches)


async def _run_until_one_ends(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Run until one of them ends; raises what it failed with."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def _end(leading: asyncio.Task[None], watches: Collection[asyncio.Task[None]]) -> None:
    """Give up the Lease, end kopf, then whatever is left of it; after a while, end the process."""
    cut_off = threading.Timer(_ENDING, _cut_off)
    cut_off.daemon = True
    cut_off.start()
    leading.cancel()
    await asyncio.wait([leading])
    for task in watches:
        task.cancel()
    await asyncio.wait(watches)
    # A watch that is cancelled together with what would pause it takes that for a pause, and goes on.
    while left := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=_CANCEL_AGAIN)


def _cut_off() -> None:
    """End the process: one that watches no more must not seem to be at work, whatever it still waits for."""
    logger.error("not ended after %.0f s: cut off", _ENDING)
    os._exit(1)


def _registry(cache: Cache, queue: WorkQueue[Key]) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    handlers.register_watches(registry, cache, queue.add)

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: object) -> None:
        handlers.configure_kopf(settings)

    return registry


async def _fill(cache: Cache, cluster: ApiCluster, settings: Settings) -> None:
    """Fill the cache. Fails, where it shows, if the CRD is missing or may not be read; waits out an outage.

    To end for an outage would have the kubelet wait minutes before the next start.
    """
    while True:
        try:
            await fill_cache(cache, cluster, settings)
        except ApiError as error:
            if error.code not in _PASSING and error.code < 500:
                raise
            logger.warning("waiting for the API server: %s", error)
            await asyncio.sleep(max(_RETRY_SECONDS, error.retry_after))
        else:
            return


def main() -> None:
    """Run the operator; exit code 1 with one line if settings or cluster are not as they must be."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kopf").setLevel(logging.WARNING)  # a line per watch event
    try:
        asyncio.run(operate(read_settings(os.environ)))
    except (ValueError, ApiError) as error:
        sys.exit(f"headrace-operator: {error}")


if __name__ == "__main__":
    main()
