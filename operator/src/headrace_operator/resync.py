"""Looks at everything again, for what the watches did not say.

A watch that was interrupted never reports what was deleted meanwhile. What is remembered but no longer
listed is read once more before it is forgotten: it may be newer than the list, and an empty list alone
proves nothing.
"""

from __future__ import annotations

from headrace_operator import names
from headrace_operator.api import Key, key_of
from headrace_operator.cache import Cache
from headrace_operator.cluster import ApiCluster
from headrace_operator.errors import ApiError
from headrace_operator.kinds import OWNED, POD, SERVICE, Resource
from headrace_operator.settings import Settings
from headrace_operator.workqueue import WorkQueue


async def resync(cache: Cache, cluster: ApiCluster, queue: WorkQueue[Key], settings: Settings) -> None:
    """Forget what is gone, then have every service looked at. Raises ApiError."""
    listed = await _uids(cluster, settings)
    for body in cache.everything():
        metadata = body["metadata"]
        if metadata["uid"] in listed:
            continue
        live = await cluster.read(body["kind"], metadata["namespace"], metadata["name"])
        if live is None or live["metadata"]["uid"] != metadata["uid"]:
            cache.drop(body)
    for body in list(cache.services()):
        queue.add(key_of(body))


async def _uids(cluster: ApiCluster, settings: Settings) -> set[str]:
    selector = f"{names.MANAGED_BY}={names.MANAGER}"
    uids: set[str] = set()
    for namespace in settings.watch_namespaces or (None,):
        for target in (SERVICE, *OWNED, POD):
            uids |= await _listed(cluster, target, namespace, "" if target is SERVICE else selector)
    return uids


async def _listed(cluster: ApiCluster, target: Resource, namespace: str | None, selector: str) -> set[str]:
    try:
        return {body["metadata"]["uid"] async for body in cluster.each(target, namespace, selector)}
    except ApiError as error:
        if error.code == 404:
            return set()  # a kind that this API server does not have, such as claims for devices
        raise
