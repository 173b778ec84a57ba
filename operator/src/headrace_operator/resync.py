"""Looks at everything again, for what the watches did not say.

A watch that was interrupted never reports what was deleted meanwhile, and one that went silent reports
nothing at all. The lists that are compared hold names and versions only. What differs is read once more
before it is believed: the cache may be newer than a list, and an empty list alone proves nothing.
"""

from __future__ import annotations

from typing import Any

from headrace_operator import names
from headrace_operator.api import Key, key_of
from headrace_operator.cache import Cache, concerns, version
from headrace_operator.cluster import ApiCluster
from headrace_operator.errors import ApiError
from headrace_operator.kinds import OWNED, POD, SERVICE, Resource
from headrace_operator.settings import Settings
from headrace_operator.workqueue import WorkQueue

Body = dict[str, Any]

_COMPARED = ("uid", "namespace", "name", "resourceVersion", "labels")


async def resync(
    cache: Cache,
    cluster: ApiCluster,
    queue: WorkQueue[Key],
    settings: Settings,
    *,
    all_services: bool = False,
) -> None:
    """Correct what is remembered; have the services looked at that it concerns, or all. Raises ApiError."""
    listed = await _listed(cluster, settings)
    for body in cache.everything():
        seen = listed.pop(body["metadata"]["uid"], None)
        if seen is None or version(seen) > version(body):
            await _look(body, cache, cluster, queue)
    for body in listed.values():
        await _look(body, cache, cluster, queue)
    for body in list(cache.services()) if all_services else ():
        queue.add(key_of(body))


async def _look(body: Body, cache: Cache, cluster: ApiCluster, queue: WorkQueue[Key]) -> None:
    """Remember the object as it is now, or forget it."""
    metadata = body["metadata"]
    live = await cluster.read(body["kind"], metadata["namespace"], metadata["name"])
    if live is None or live["metadata"]["uid"] != metadata["uid"] or concerns(live) is None:
        cache.drop(body)
    if live is not None:
        cache.put(live)
    key = concerns(body)
    if key is not None:
        queue.add(key)


async def _listed(cluster: ApiCluster, settings: Settings) -> dict[str, Body]:
    """References to every object that concerns a service, by uid."""
    selector = f"{names.MANAGED_BY}={names.MANAGER}"
    found: dict[str, Body] = {}
    for namespace in settings.watch_namespaces or (None,):
        for target in (SERVICE, *OWNED, POD):
            for body in await _of_kind(cluster, target, namespace, "" if target is SERVICE else selector):
                if concerns(body) is not None:
                    found[body["metadata"]["uid"]] = _reference(body)
    return found


def _reference(body: Body) -> Body:
    """What is needed to compare an object and to look it up; the rest would double what is remembered."""
    metadata = body["metadata"]
    kept = {name: metadata[name] for name in _COMPARED if name in metadata}
    return {"kind": body["kind"], "metadata": kept}


async def _of_kind(cluster: ApiCluster, target: Resource, namespace: str | None, selector: str) -> list[Body]:
    try:
        return [body async for body in cluster.each(target, namespace, selector, metadata_only=True)]
    except ApiError as error:
        if error.code == 404:
            return []  # a kind that this API server does not have, such as claims for devices
        raise
