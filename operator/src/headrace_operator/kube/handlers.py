"""What kopf does for us: it watches, fills the cache and puts keys on the queue. Nothing else happens here.

What there was before is in the cache already (`resync.fill_cache`); kopf lists it once more, which puts every
service on the queue. Its high-level handlers are not used: they react to edges, write progress annotations
and add finalizers; these watches only read. Nor are its indices, which take minutes for ten thousand objects.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import kopf

from headrace_operator import names
from headrace_operator.api import Key
from headrace_operator.api.bodies import JsonObject
from headrace_operator.decide.model_names import find_rivals
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.kinds import OWNED, OWNERS, POD, SERVICE, WATCHED, Resource
from headrace_operator.metrics import LAST_EVENT

_FIRST_PAUSE = 1.0  # seconds
_LONGEST_PAUSE = 36.0  # two attempts in the 70 s after which kopf ends a watch and begins it anew


class WatchBackoff:
    """Seconds between attempts of a watch, without an end: as long as it has failed, within bounds.

    Kopf begins to iterate for each request, and makes a new request of a watch that was silent for long; the
    pauses go on where they were. So eight watches, each tried twice by aiohttp where connections break, stay
    below one request a second. A watch is known by its task.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        watch: Callable[[], object] = asyncio.current_task,
    ) -> None:
        self._clock, self._watch = clock, watch
        self._failing: WeakKeyDictionary[object, tuple[float, float]] = WeakKeyDictionary()

    def __iter__(self) -> Iterator[float]:
        while True:
            yield self._pause()

    def _pause(self) -> float:
        now, watch = self._clock(), self._watch()
        began, over = self._failing.get(watch, (now, now))
        if now > over:
            began = now
        pause = min(max(now - began, _FIRST_PAUSE), _LONGEST_PAUSE)
        self._failing[watch] = began, now + 1.5 * pause + 1.0  # time for the next attempt to fail
        return pause


def register_watches(registry: kopf.OperatorRegistry, cache: Cache, enqueue: Callable[[Key], None]) -> None:
    """Register handlers for every kind that the operator watches, and how kopf gets its credentials."""
    kopf.on.login(registry=registry)(_login)
    for resource in WATCHED:
        _watch(registry, resource, cache, enqueue)


def configure_kopf(settings: kopf.OperatorSettings) -> None:
    """Configure kopf: read only, by label, and never trusting a silent watch."""
    settings.posting.enabled = False  # events are ours, on transitions only
    settings.scanning.disabled = True  # no list of CRDs and namespaces: least privilege
    settings.watching.inactivity_timeout = 70  # bookmarks come every minute; the API server keeps events 75 s
    settings.watching.reconnect_backoff = 1.0  # the default would relist ten times a second on a repeated 410
    settings.networking.error_backoffs = (
        WatchBackoff()
    )  # kopf gives up after eight tries, and ends the operator
    settings.watching.chunk_size = 100  # objects; lists of a thousand, of all kinds at once, take 200 MiB
    settings.networking.request_timeout = 30  # of a list: five minutes would be lost on each that hangs
    settings.queueing.idle_timeout = 0.05  # a kopf worker has nothing to wait for after our handlers
    settings.persistence.diffbase_storage = _NoDiffs()
    for resource in (*OWNED, POD):
        # The tuple form: a "group/plural" string is accepted and filters nothing.
        settings.watching.label_selectors[resource.group, resource.version, resource.plural] = names.SELECTOR


class _NoDiffs(kopf.DiffBaseStorage):
    """Kopf compares each event's object with what handlers of changes saw last; there are none of those."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    """Log in by the pod's service account, or by KUBECONFIG outside a cluster; again when a token expires."""
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


def _watch(
    registry: kopf.OperatorRegistry, resource: Resource, cache: Cache, enqueue: Callable[[Key], None]
) -> None:
    target = (resource.group, resource.version, resource.plural)

    async def event(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        LAST_EVENT.labels(resource.kind).set(time.time())
        item = _typed(resource, body)
        deleted = event["type"] == "DELETED"
        if resource in OWNERS and not deleted and cache.has_seen(item):
            return  # mostly our own status: it must not cut short the wait after a failure
        for key in cache.drop(item) if deleted else cache.put(item):
            enqueue(key)
        for rival in find_rivals(item, cache.services_asking_for) if resource is SERVICE or deleted else ():
            enqueue(rival)

    kopf.on.event(*target, id=f"on-{resource.plural}", registry=registry)(event)


def _typed(resource: Resource, body: kopf.Body) -> JsonObject:
    """Return the plain object, with the kind that lists leave out."""
    return {**dict(body), "apiVersion": resource.api_version, "kind": resource.kind}
