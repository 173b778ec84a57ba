"""Reads what there is of one service: cached objects, the pods that are its own, their sidecars' reports."""

from __future__ import annotations

from headrace_operator.api import Key, LLMService, key_of
from headrace_operator.api.bodies import Body, JsonObject
from headrace_operator.decide.observation import Observation, observe
from headrace_operator.desired import owner
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.client import Cluster
from headrace_operator.kube.ownership import Ownership
from headrace_operator.run.sidecar_status import SidecarStatuses


class Observer:
    """Observes services through the cache; asks the API server only for what the cache cannot know."""

    def __init__(self, cache: Cache, cluster: Cluster, sidecars: SidecarStatuses) -> None:
        self._cache = cache
        self._cluster = cluster
        self._sidecars = sidecars
        self._ownership = Ownership(cluster)

    def observe(self, key: Key) -> Observation:
        """Return what is there of the service now."""
        pods = self._ownership.own_pods(key, self._cache.pods(key))
        return observe(self._cache.owned(key), pods, self._sidecars.reports(key))

    async def find_own_pods(self, service: Body, now: float) -> float | None:
        """Find out which of the pods with the service's label are its own; seconds until more are checked.

        `service` is the raw LLMService. Raises ApiError.
        """
        key = key_of(service)
        live = self._cache.owned_object(key, "Deployment", key.name)
        own = live if live is not None and owner(live) == service["metadata"]["uid"] else None
        return await self._ownership.learn(key, own, self._cache.pods(key), now)

    async def read_deployment(self, service: LLMService) -> JsonObject | None:
        """Return the service's Deployment, read from the API server if it is not cached. Raises ApiError.

        To render it anew because it is not cached yet could restart engines.
        """
        cached = self._cache.owned_object(service.key, "Deployment", service.key.name)
        if cached is not None:
            return cached
        found = await self._cluster.read("Deployment", service.key.namespace, service.key.name)
        return found if found and owner(found) == service.uid else None

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a service that is gone."""
        self._ownership.forget(key)
