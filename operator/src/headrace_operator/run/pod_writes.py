"""Writes to pods: the annotation that refreshes the policy, and the condition of their readiness gate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from headrace_operator import metrics, names
from headrace_operator.api import Key
from headrace_operator.decide.observation import Observation
from headrace_operator.decide.policy_refresh import RefreshPolicy
from headrace_operator.decide.routing_status import newly_routed_pods, routed_condition
from headrace_operator.errors import ApiError
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.client import Cluster


async def refresh_pods(key: Key, refreshes: Iterable[RefreshPolicy], cluster: Cluster, cache: Cache) -> None:
    """Write the refreshes side by side. Raises ApiError."""
    await asyncio.gather(*(_refresh(key, refresh, cluster, cache) for refresh in refreshes))


async def _refresh(key: Key, refresh: RefreshPolicy, cluster: Cluster, cache: Cache) -> None:
    annotations = {names.POLICY_REFRESH: refresh.value}
    try:
        cache.put(await cluster.annotate("Pod", key.namespace, refresh.pod.name, annotations))
    except ApiError as error:
        if error.code != 404:  # the pod is gone, and with it the need
            raise
        cache.discard_owned(key, "Pod", refresh.pod.name)
    metrics.ACTIONS.labels("refresh", "Pod").inc()


async def open_readiness_gates(
    key: Key, observed: Observation, cluster: Cluster, cache: Cache, now: str
) -> None:
    """Tell pods that every Envoy routes to them, at `now` (RFC 3339). Raises ApiError once all were tried."""
    refused: list[ApiError] = []
    for pod in newly_routed_pods(key, observed):
        try:
            cache.put(await cluster.set_condition(key.namespace, pod.name, pod.uid, routed_condition(now)))
            metrics.ACTIONS.labels("route", "Pod").inc()
        except ApiError as error:
            if error.code in {404, 409}:  # the pod is gone
                continue
            if not error.is_about_object:
                raise
            refused.append(error)
    if refused:
        raise refused[0]
