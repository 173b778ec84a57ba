"""The picker process: picks and configuration for Envoy, probes and figures, and the loops that feed them.

`Source` is where the catalog comes from (Kubernetes in a cluster, anything in a test). Each catalog that it
gives is made effective here, in one step: fleets, load streams, Envoy's configuration, readiness.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc

from headrace_gateway import metrics, probes, process
from headrace_gateway.catalog import Catalog, Publish, ServiceKey
from headrace_gateway.kube.lease import Lead
from headrace_gateway.pick import counting, pick_server
from headrace_gateway.pick.peers import Find, sharing
from headrace_gateway.pick.picker import Picker
from headrace_gateway.pick.prompt_reader import PromptReader
from headrace_gateway.reports import load_client
from headrace_gateway.reports.status_reporter import Reporter, write_nowhere
from headrace_gateway.settings import Settings
from headrace_gateway.xds.acknowledged import Progress, measure_progress
from headrace_gateway.xds.ads import DiscoveryServer, Snapshots
from headrace_gateway.xds.generation_cache import GenerationCache
from headrace_gateway.xds.snapshot import build_snapshot

log = logging.getLogger(__name__)

Source = Callable[[Publish], Coroutine[Any, Any, None]]  # runs for ever; publishes every whole catalog
Elect = Callable[[Lead], Coroutine[Any, Any, None]]  # tells whether this picker leads

DRAIN_SECONDS = 1.5  # for every Envoy's health check, once a second, to see that this picker leaves


async def lead_alone(lead: Lead) -> None:
    """Elect this picker, which is the only one."""
    lead(True)


async def serve(  # noqa: PLR0917  (what differs in a test)
    settings: Settings,
    source: Source,
    elect: Elect = lead_alone,
    stale_after: float = math.inf,
    reporter: Reporter | None = None,
    find_peers: Find | None = None,
) -> None:
    """Run until SIGTERM or SIGINT; raises what the source or the election raises.

    A source that published nothing for `stale_after` seconds, not even the same again, is out of date.

    Every picker follows engines, answers picks and tells the others of them. The one that leads configures
    Envoys: those with another are sent to it. A picker stands for election once it has a whole catalog. One
    that is out of date leaves picks to those that are not.
    """
    picker = Picker(time.monotonic, Random())  # noqa: S311  (balancing, not cryptography)
    snapshots, cache = Snapshots(), GenerationCache()
    leaving = asyncio.Event()
    synced = asyncio.Event()
    leads: bool | None = None
    reporter = reporter or Reporter(dict, write_nowhere)
    discovery = DiscoveryServer(snapshots, stale_after, lambda: leads is False, reporter.note_change)
    server = _ads_server(settings, discovery)
    async with (
        load_client.client(picker.observe, picker.random) as loads,
        PromptReader() as reader,
        sharing(picker, settings, find_peers),
        asyncio.TaskGroup() as group,
    ):
        published: Catalog | None = None

        def publish(catalog: Catalog) -> None:
            nonlocal published
            if catalog == published:
                snapshots.confirm()
                return  # most events change nothing that counts here
            snapshot = build_snapshot(
                catalog, cache
            )  # first: if it can't be built, the last catalog stays whole
            picker.set_catalog(catalog)
            loads.set_catalog(catalog)
            snapshots.publish(snapshot)
            _tell(catalog, published)
            published = catalog
            synced.set()
            reporter.note_change()

        def lead(now: bool | None) -> None:
            nonlocal leads
            leads = now
            metrics.LEADS.set(bool(now))
            reporter.lead(bool(now))

        def state() -> pick_server.State:
            if leaving.is_set() or not synced.is_set():
                return "away"
            return "stale" if snapshots.age > stale_after else "current"

        def far(key: ServiceKey) -> Progress:
            return measure_progress(str(key), snapshots.current or {}, discovery.envoys, time.monotonic())

        async def stand() -> None:
            await synced.wait()
            await elect(lead)

        await server.start()
        picks = pick_server.server(
            picker, reader, state, lambda: bool(leads) and not leaving.is_set(), settings.max_body_bytes
        )
        await picks.start(settings.address, settings.picks_port)
        http = await probes.start(settings, picker, lambda: "" if synced.is_set() else probes.NO_CATALOG)
        feeding = group.create_task(source(publish))
        others = [group.create_task(stand()), group.create_task(reporter.run(far))]
        process.leave_to_stay()
        log.info("picker listens on %s:%d", settings.address, settings.picks_port)
        await process.stop_signal(feeding)
        leaving.set()
        for task in others:
            task.cancel()  # gives the Lease back; picks under way are still answered here
        await asyncio.sleep(DRAIN_SECONDS)
        feeding.cancel()
        await server.stop(grace=DRAIN_SECONDS)
        await picks.close(DRAIN_SECONDS)
        await http.cleanup()


def _tell(catalog: Catalog, before: Catalog | None) -> None:
    metrics.SERVICES.set(len(catalog.services))
    metrics.SYNCED.set(1)
    if before is not None:
        counting.forget(map(str, before.services.keys() - catalog.services.keys()))


def _ads_server(settings: Settings, discovery: DiscoveryServer) -> grpc.aio.Server:
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1), *process.GRPC_OPTIONS])
    ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(discovery, server)
    server.add_insecure_port(f"{settings.address}:{settings.ads_port}")
    return server
