"""Looks at everything: at the start, so that nothing is decided by half of what there is, and then again and
again for what the watches did not say.

A watch that was interrupted never reports what was deleted meanwhile, and one that went silent reports
nothing at all. The lists that are compared hold names and versions only. What differs is read once more
before it is believed: the cache may be newer than a list, and an empty list alone proves nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from headrace_operator import names
from headrace_operator.api import KIND, Key, key_of
from headrace_operator.api.bodies import JsonObject
from headrace_operator.decide.model_names import find_rivals
from headrace_operator.errors import ApiError
from headrace_operator.kube.cache import Cache, version
from headrace_operator.kube.client import ApiCluster
from headrace_operator.kube.kinds import OWNERS, SERVICE, WATCHED, Resource
from headrace_operator.names import owner_key_of
from headrace_operator.settings import Settings

_COMPARED = ("uid", "namespace", "name", "resourceVersion", "labels")


async def fill_cache(cache: Cache, cluster: ApiCluster, settings: Settings) -> None:
    """Remember all that there is. Raises ApiError.

    Kopf's indices would do that too, with ten thousand objects in minutes: each wakes all before it.
    """
    for target in WATCHED:
        async for body in _each(target, cluster, settings):
            cache.put(body)


async def resync(
    cache: Cache,
    cluster: ApiCluster,
    enqueue: Callable[[Key], None],
    settings: Settings,
    *,
    all_keys: bool = False,
) -> None:
    """Correct what is remembered; have those looked at that it concerns, or all. Raises ApiError."""
    for target in WATCHED:  # one by one: what is listed takes memory
        before = {body["metadata"]["uid"]: version(body) for body in cache.objects_of_kind(target.kind)}
        each = _each(target, cluster, settings, metadata_only=True)
        listed = {body["metadata"]["uid"]: _reference(body) async for body in each}
        for body in cache.objects_of_kind(target.kind):
            uid = body["metadata"]["uid"]
            seen = listed.pop(uid, None)
            if seen is None or not before.get(uid, 0) <= version(seen) <= version(body):
                await _reload(body, cache, cluster, enqueue)
        for body in listed.values():
            await _reload(body, cache, cluster, enqueue)
    for body in [*cache.services(), *cache.pools()] if all_keys else ():
        enqueue(key_of(body))


async def _reload(
    body: JsonObject, cache: Cache, cluster: ApiCluster, enqueue: Callable[[Key], None]
) -> None:
    """Remember the object as it is now, or forget it; have looked at whom that concerns."""
    metadata = body["metadata"]
    live = await cluster.read(body["kind"], metadata["namespace"], metadata["name"])
    changed = [live, cache.service(key_of(body))] if body["kind"] == KIND else []
    keys = {key for item in (body, live) if item and (key := owner_key_of(item))}
    if live is None or live["metadata"]["uid"] != metadata["uid"] or owner_key_of(live) != owner_key_of(body):
        keys.update(cache.drop(body))
    elif version(live) < version(body):
        cache.replace_by_older(body, live)
    if live is not None:
        keys.update(cache.put(live))
    for service in changed:
        keys.update(find_rivals(service, cache.services_asking_for) if service else ())
    for key in keys:
        enqueue(key)


async def _each(
    target: Resource, cluster: ApiCluster, settings: Settings, *, metadata_only: bool = False
) -> AsyncIterator[JsonObject]:
    """Yield every object of a kind that concerns a service or a pool."""
    selector = "" if target in OWNERS else names.SELECTOR
    for namespace in settings.watch_namespaces or (None,):
        try:
            async for body in cluster.list_objects(target, namespace, selector, metadata_only=metadata_only):
                if owner_key_of(body) is not None:
                    yield body
        except ApiError as error:
            if error.code != 404 or target is SERVICE:
                raise  # other kinds may be missing, such as claims for devices


def _reference(body: JsonObject) -> JsonObject:
    """Return what is needed to compare an object and to look it up; the rest would take as much again."""
    metadata = body["metadata"]
    kept = {name: metadata[name] for name in _COMPARED if name in metadata}
    return {"kind": body["kind"], "metadata": kept}
