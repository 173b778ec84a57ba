"""Reports in LLMRoutes' status what this gateway serves; only the picker that leads does.

Looks when something changed, and writes what differs, a route at most once a second and all together at most
`MOST_PER_SECOND`; nothing while nothing changes. What mostly passes at once is written if it stays. A route
whose status the API server refuses is tried again ever more seldom, and holds up no other.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kubernetes.aio import client

from headrace_gateway.catalog import ServiceKey
from headrace_gateway.kube import llmroutes
from headrace_gateway.kube.llmroutes import ReadRoute
from headrace_gateway.reports.route_status import is_passing, route_status
from headrace_gateway.xds.acknowledged import Progress

log = logging.getLogger(__name__)

SETTLE_SECONDS = 5.0  # after it began to lead: until then Envoys come over from the picker before
POLL_SECONDS = 5.0  # between looks when nothing seems to have changed
GATHER_SECONDS = 0.1
PASSING_SECONDS = 2.0
APART_SECONDS = 1.0
MOST_PER_SECOND = 20
LONGEST_PAUSE = 30.0
WRITE_SECONDS = 5.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Written:
    """What was written last of a route that had `version` then; no `status` if that was refused."""

    status: Json | None
    version: str | None
    next_at: float  # when it may be written again, on the reporter's clock
    pause: float = APART_SECONDS  # seconds until then


Write = Callable[[ReadRoute, Json], Awaitable[None]]


class Reporter:
    """`read_routes` gives the routes as they were read; `write` raises what went wrong."""

    def __init__(
        self,
        read_routes: Callable[[], Mapping[ServiceKey, ReadRoute]],
        write: Write,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read_routes, self._write, self._clock = read_routes, write, clock
        self._leads = False
        self._wake = asyncio.Event()
        self._written: dict[ServiceKey, _Written] = {}
        self._doubted: dict[ServiceKey, float] = {}  # since when what passes has not passed

    def note_change(self) -> None:
        """Tell that something changed: what differs is written soon."""
        self._wake.set()

    def lead(self, now: bool) -> None:
        """Tell whether this picker leads: only then it writes."""
        self._leads = now
        self._wake.set()

    async def run(self, progress: Callable[[ServiceKey], Progress]) -> None:
        """Report for as long as this picker leads, for ever; `progress` tells how far a route is."""
        while True:
            self._written.clear()
            self._doubted.clear()
            while not self._leads:
                self._wake.clear()
                await self._wake.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            await self._report_while_leading(progress)

    async def _report_while_leading(self, progress: Callable[[ServiceKey], Progress]) -> None:
        pause = 0.0
        while self._leads:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(GATHER_SECONDS + pause)
            try:
                waiting = await self._write_news(progress)
            except (
                Exception
            ) as error:  # the API server is away, say: what it missed is found at the next look
                log.warning("status of routes: %s", str(error) or type(error).__name__)
                pause = min(max(2 * pause, 1.0), LONGEST_PAUSE)
                self._wake.set()
                continue
            pause = 0.0
            if waiting:
                asyncio.get_running_loop().call_later(APART_SECONDS, self._wake.set)

    async def _write_news(self, progress: Callable[[ServiceKey], Progress]) -> bool:
        """Write what differs and may be written; returns whether something has to wait."""
        waiting, routes = False, dict(self._read_routes())
        for remembered in (self._written, self._doubted):
            for gone in remembered.keys() - routes.keys():
                del remembered[gone]
        for key, each in routes.items():
            status = route_status(each, progress(key), _now())
            last = self._written.get(key)
            if not _is_news(status, each.manifest.get("status") or {}) or _on_its_way(status, each, last):
                self._doubted.pop(key, None)
                continue
            now = self._clock()
            doubted = is_passing(status) and now - self._doubted.setdefault(key, now) < PASSING_SECONDS
            if not self._leads or doubted or (last and now < last.next_at):
                waiting = True
                continue
            self._written[key] = await self._try(each, status, last)
            self._doubted.pop(key, None)
            await asyncio.sleep(1 / MOST_PER_SECOND)
        return waiting

    async def _try(self, read: ReadRoute, status: Json, last: _Written | None) -> _Written:
        """Write the status of one route; raises what concerns all of them."""
        metadata, began = read.manifest["metadata"], self._clock()
        version = metadata.get("resourceVersion")
        try:
            await self._write(read, status)
        except client.ApiException as error:
            pause = min(2 * last.pause, LONGEST_PAUSE) if last and last.status is None else APART_SECONDS
            name = f"{metadata['namespace']}/{metadata['name']}"
            log.warning("status of LLMRoute %s: %s %s", name, error.status, error.reason)
            return _Written(None, version, began + pause, pause)
        return _Written(status, version, began + APART_SECONDS)


def _on_its_way(status: Json, read: ReadRoute, last: _Written | None) -> bool:
    """Tell whether this was written, and the watch has not brought the route since."""
    if last is None or last.status is None or _is_news(status, last.status):
        return False
    version: str | None = read.manifest["metadata"].get("resourceVersion")
    return version == last.version


def _is_news(status: Json, before: Json) -> bool:
    """Tell whether two statuses differ in more than times."""
    return _timeless(status) != _timeless(before)


def _timeless(status: Json) -> Json:
    conditions = [
        {name: value for name, value in each.items() if name != "lastTransitionTime"}
        for each in status.get("conditions") or ()
    ]
    empty: Json = {"observedGeneration": 0, "envoys": 0, "pods": []}
    return {**empty, **status, "conditions": conditions}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def write_nowhere(_read: ReadRoute, _status: Json) -> None:
    """Write nothing, where there is no Kubernetes."""


def make_writer(api: client.ApiClient) -> Write:
    """Make what writes through `api`, to exactly the object that was read."""
    custom = client.CustomObjectsApi(api)

    async def write(read: ReadRoute, status: Json) -> None:
        metadata = read.manifest["metadata"]
        try:
            await custom.patch_namespaced_custom_object_status(
                group=llmroutes.GROUP,
                version=llmroutes.VERSION,
                namespace=metadata["namespace"],
                plural=llmroutes.PLURAL,
                name=metadata["name"],
                body={"metadata": {"uid": metadata["uid"]}, "status": status},
                field_manager="headrace-picker",
                _content_type="application/merge-patch+json",
                _request_timeout=WRITE_SECONDS,
            )
        except client.ApiException as error:
            if error.status not in {404, 409, 422}:  # gone, or another object by now
                raise

    return write
