"""List and watch one kind of Kubernetes object for ever, into a store.

List first, then watch from the list's version. A watch ends when the server says so, every five minutes; then
comes a new list. If it ends by an error, or was mute for longer than a bookmark takes, it goes on from the
last version seen, or from a new list if that version is gone (410). While the API server is away the store
keeps what it had.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable
from types import MethodType
from typing import Any

from kubernetes.aio import client
from kubernetes.aio import watch as kubernetes_watch

from headrace_gateway import metrics

log = logging.getLogger(__name__)

WATCH_SECONDS = 300  # the server ends a watch after this long
MUTE_SECONDS = 100.0  # bookmarks come every 60 to 75 s
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0

Json = dict[str, Any]


class Store:
    """Objects of one kind by (namespace, name); `None` until the first list is in."""

    def __init__(self, kind: str, changed: Callable[[], None]) -> None:
        self.kind = kind
        self.objects: dict[tuple[str, str], Json] | None = None
        self.heard = -math.inf  # when the API server last said something, on the loop's clock
        self._changed = changed

    def replace(self, objects: list[Json]) -> None:
        """Replace all objects by those of a new list."""
        self.objects = {_key(each): _strip(each) for each in objects}
        self._changed()

    def apply(self, change: str, each: Json) -> None:
        """Apply one watch event: an object was added, changed or deleted."""
        objects = self.objects if self.objects is not None else {}
        if change == "DELETED":
            objects.pop(_key(each), None)
        else:
            objects[_key(each)] = _strip(each)
        self.objects = objects
        self._changed()


async def follow_objects(store: Store, call: MethodType, **selection: Any) -> None:
    """Keep `store` equal to what `call`, a list method of a Kubernetes API, gives; never returns."""
    pause = FIRST_PAUSE
    version: str | None = None
    clock = asyncio.get_running_loop().time
    while True:
        try:
            if version is None:
                version = await _list(store, call, selection)
                store.heard = clock()
            began = clock()
            async for event in _watch(call, selection, version):
                store.heard = clock()
                each = event["raw_object"]
                version = each["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    store.apply(event["type"], each)
                pause = FIRST_PAUSE
        except client.ApiException as error:
            if error.status == 410:
                version = None
            log.warning("watch of %s: %s %s", store.kind, error.status, error.reason)
        except TimeoutError:
            log.warning("watch of %s was mute for %.0f s", store.kind, MUTE_SECONDS)
        except Exception as error:  # a proxy's page instead of events fails in many ways, in the client too
            log.warning("watch of %s: %s", store.kind, str(error) or type(error).__name__)
        else:  # the server ended the watch in good order
            if clock() - began >= WATCH_SECONDS / 2:
                version = None  # what no watch tells, such as a restored etcd, is found in a list
            await asyncio.sleep(FIRST_PAUSE)
            continue
        metrics.WATCH_RESTARTS.labels(store.kind).inc()
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


async def _list(store: Store, call: MethodType, selection: Json) -> str:
    raw = getattr(call.__self__, f"{call.__name__}_without_preload_content")  # plain JSON, no models
    response = await raw(**selection)
    listed = await response.json()
    if response.status >= 400:
        raise client.ApiException(status=response.status, reason=listed.get("message"))
    store.replace(listed["items"])
    version: str = listed["metadata"]["resourceVersion"]
    return version


async def _watch(call: MethodType, selection: Json, version: str) -> AsyncIterator[Json]:
    watch = kubernetes_watch.Watch(return_type="object")
    stream = watch.stream(
        call,
        **selection,
        resource_version=version,
        allow_watch_bookmarks=True,
        timeout_seconds=WATCH_SECONDS,
        _request_timeout=WATCH_SECONDS + 30,
    )
    try:
        while True:
            async with asyncio.timeout(MUTE_SECONDS):
                event = await anext(stream, None)
            if event is None:
                return
            yield event
    finally:
        await watch.close()


def _strip(each: Json) -> Json:
    """Remove what nobody reads here and anybody may have filled."""
    metadata = {k: v for k, v in each["metadata"].items() if k not in {"managedFields", "annotations"}}
    return {**each, "metadata": metadata}


def _key(each: Json) -> tuple[str, str]:
    return each["metadata"]["namespace"], each["metadata"]["name"]
