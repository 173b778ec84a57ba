"""ADS: tells every Envoy of clusters, endpoints and routes, in the protocol's state-of-the-world form.

One coroutine per Envoy. It answers a subscription at once, then sends a type again whenever its version
changes, always in the order clusters, endpoints, routes. Nothing is answered until the first whole catalog
is known: an empty answer from a picker that has just started would take every route away from a working
Envoy. A picker that has lost the API server says nothing to Envoys that have a configuration, and ends their
streams: they come back, sooner or later to a picker that is up to date. So does one that knows of another
that leads: whoever leads reports what Envoys have, and can tell of all only if all come to it.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from headrace_gateway import metrics
from headrace_gateway.xds.acknowledged import MESSAGE_LENGTH, Envoy, Subscription
from headrace_gateway.xds.snapshot import CLUSTERS, ENDPOINTS, TYPES, Snapshot

log = logging.getLogger(__name__)

POLL_SECONDS = 3.0  # between looks at whether Envoys should ask another picker


class Snapshots:
    """The newest snapshot, and a way to wait for the next; used from one event loop."""

    def __init__(self) -> None:
        self._current: Snapshot | None = None
        self._changed = asyncio.Event()
        self._confirmed = -math.inf

    @property
    def age(self) -> float:
        """Seconds since the current snapshot was known to be what there is."""
        return time.monotonic() - self._confirmed

    def confirm(self) -> None:
        """Note that the current snapshot still is what there is."""
        self._confirmed = time.monotonic()

    @property
    def current(self) -> Snapshot | None:
        """`None` until the first whole catalog is known."""
        return self._current

    def publish(self, snapshot: Snapshot) -> None:
        """Make `snapshot` the one that every Envoy shall have."""
        self._current = snapshot
        self.confirm()
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_next(self) -> None:
        """Return after the next `publish`."""
        await self._changed.wait()


class DiscoveryServer(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):
    """The gRPC service; a snapshot that was not confirmed for `stale_after` seconds is out of date.

    `stands_aside` tells whether another picker leads; `changed` is called when an Envoy answered or went.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        stale_after: float = math.inf,
        stands_aside: Callable[[], bool] = lambda: False,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.envoys: list[Envoy] = []
        self._snapshots = snapshots
        self._stale_after = stale_after
        self._stands_aside = stands_aside
        self._changed = changed

    async def StreamAggregatedResources(  # noqa: N802  (gRPC's name)
        self,
        requests: AsyncIterator[discovery_pb2.DiscoveryRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[discovery_pb2.DiscoveryResponse]:
        """Serve one Envoy until it goes away."""
        subscriptions: dict[str, Subscription] = {}
        wake = asyncio.Event()
        tasks = [
            asyncio.create_task(self._listen(requests, subscriptions, wake)),
            asyncio.create_task(self._watch(wake)),
        ]
        peer, began = context.peer(), time.monotonic()
        log.info("envoy %s connected", peer)
        self.envoys.append(subscriptions)
        try:
            with metrics.ENVOYS.track_inprogress():
                while not tasks[0].done():
                    wake.clear()
                    for response in self._due(subscriptions):
                        yield response
                    try:
                        async with asyncio.timeout(POLL_SECONDS):
                            await wake.wait()
                    except TimeoutError:
                        if self._is_outdated(subscriptions):
                            log.warning("envoy %s is sent to another picker: this one is out of date", peer)
                            break
                    if self._stands_aside() and time.monotonic() - began > POLL_SECONDS:
                        log.info("envoy %s is sent to the picker that leads", peer)
                        break
        finally:
            self.envoys[:] = [envoy for envoy in self.envoys if envoy is not subscriptions]
            self._changed()
            for task in tasks:
                task.cancel()
            log.info("envoy %s gone", peer)

    async def _listen(
        self,
        requests: AsyncIterator[discovery_pb2.DiscoveryRequest],
        subscriptions: dict[str, Subscription],
        wake: asyncio.Event,
    ) -> None:
        try:
            async for request in requests:
                take_request(request, subscriptions)
                wake.set()
                self._changed()
        finally:
            wake.set()

    async def _watch(self, wake: asyncio.Event) -> None:
        while True:
            await self._snapshots.wait_for_next()
            wake.set()

    def _due(self, subscriptions: dict[str, Subscription]) -> list[discovery_pb2.DiscoveryResponse]:
        if self._snapshots.current is None or self._is_outdated(subscriptions):
            return []
        return make_due_responses(self._snapshots.current, subscriptions)

    def _is_outdated(self, subscriptions: dict[str, Subscription]) -> bool:
        """Tell whether what is known here may be older than what the Envoy has."""
        has_some = any(each.had or each.sent for each in subscriptions.values())
        return has_some and self._snapshots.age > self._stale_after


def take_request(request: discovery_pb2.DiscoveryRequest, subscriptions: dict[str, Subscription]) -> None:
    """Take in a subscription, an acknowledgement or a refusal; of types that there are, not of any."""
    if request.type_url not in TYPES:
        return
    subscription = subscriptions.setdefault(request.type_url, Subscription())
    refused = request.HasField("error_detail")
    words = (request.error_detail.message or "refused")[:MESSAGE_LENGTH] if refused else ""
    subscription.record_answer(request.response_nonce, request.version_info, words)
    if refused:
        # Sending the same again would only be refused again; the next change is tried.
        kind = request.type_url.rpartition(".")[2]
        metrics.ADS_REFUSALS.labels(kind).inc()
        log.error("envoy refused %s: %s", kind, words)
    subscription.had |= bool(request.version_info)
    asked = frozenset(request.resource_names)
    if asked != subscription.names:
        subscription.names = asked
        subscription.sent = None


def make_due_responses(
    snapshot: Snapshot, subscriptions: dict[str, Subscription]
) -> list[discovery_pb2.DiscoveryResponse]:
    """Make the responses of the subscribed types that changed, in an order that Envoy can apply."""
    responses = []
    for kind in TYPES:
        subscription = subscriptions.get(kind)
        resources = snapshot[kind]
        if subscription is None:
            continue
        if subscription.sent == resources.version:
            subscription.record_unchanged(resources)
            continue
        subscription.record_offer(resources, time.monotonic())
        responses.append(
            discovery_pb2.DiscoveryResponse(
                version_info=resources.version,
                type_url=kind,
                resources=resources.items,
                nonce=resources.version,
            )
        )
        if kind == CLUSTERS and ENDPOINTS in subscriptions:
            subscriptions[ENDPOINTS].sent = None  # a changed cluster waits for its endpoints anew
    return responses
