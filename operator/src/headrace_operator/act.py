"""Carries out a plan's actions, after making sure that nothing of someone else's is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from headrace_operator import names
from headrace_operator.api import KIND, LLMService, Reason, is_paused
from headrace_operator.cache import Cache
from headrace_operator.cluster import Cluster
from headrace_operator.desired import owner
from headrace_operator.errors import ApiError, RefusedError, TransientError
from headrace_operator.metrics import ACTIONS
from headrace_operator.plan import Action, Apply, Delete, Nudge
from headrace_operator.preflight import check_claim_template, check_deployment

_COLLECTED_AGAIN = 2.0  # seconds until the garbage collector is worth another look
_SEEN_AGAIN = 1.0  # seconds; the watch is late, and its event will come earlier or not at all


async def carry_out(service: LLMService, actions: Iterable[Action], cluster: Cluster, cache: Cache) -> None:
    """All actions: objects in their order, then nudges side by side. What was written goes into the cache.

    Raises RefusedError or TransientError before anything is written, ApiError at any point.
    """
    actions = tuple(actions)
    for action in actions:
        if isinstance(action, Apply):
            await _check(service, action, cluster)
    if any(
        isinstance(action, Delete) or (isinstance(action, Apply) and action.creates) for action in actions
    ):
        await _check_current(service, cluster)
    nudges = []
    for action in actions:
        match action:
            case Apply(manifest):
                cache.put(await cluster.apply(manifest))
                ACTIONS.labels("apply", manifest["kind"]).inc()
            case Delete(kind, name, uid):
                await cluster.delete(kind, service.key.namespace, name, uid)
                cache.discard(service.key, kind, name)
                ACTIONS.labels("delete", kind).inc()
            case Nudge():
                nudges.append(_nudge(service, action, cluster, cache))
    await asyncio.gather(*nudges)


async def _check(service: LLMService, action: Apply, cluster: Cluster) -> None:
    """Raise what stands against it; nothing is written."""
    kind, name = action.manifest["kind"], action.manifest["metadata"]["name"]
    if not action.creates and kind != "Deployment":
        return
    found = await cluster.read(kind, service.key.namespace, name)
    if action.creates:
        _check_free(service, kind, name, found)
    if kind == "Deployment":
        await check_deployment(action.manifest, found, cluster)
    if kind == "ResourceClaimTemplate":
        await check_claim_template(action.manifest, cluster)


def _check_free(service: LLMService, kind: str, name: str, found: Mapping[str, Any] | None) -> None:
    """Refuse to take an object of someone else's, as an apply would.

    What we made and what nobody owns is ours to go on with: somebody's manifest may have replaced its labels
    and its owner, or its service was deleted with `--cascade=orphan`.
    """
    if found is None or owner(found) == service.uid:
        return
    metadata = found["metadata"]
    if not metadata.get("ownerReferences") and _made_by_us(metadata):
        return
    if (metadata.get("labels") or {}).get(names.SERVICE_LABEL) == service.key.name:
        raise TransientError(f"{kind} {name} of a deleted service is still there", _COLLECTED_AGAIN)
    raise RefusedError(
        Reason.OBJECT_NAME_TAKEN,
        f"metadata.name: {kind} {name} exists and is not Headrace's: delete it or rename the service",
    )


def _made_by_us(metadata: Mapping[str, Any]) -> bool:
    """Whether the API server has recorded that fields of it are as we applied them."""
    return any(
        entry.get("manager") == names.FIELD_MANAGER and entry.get("operation") == "Apply"
        for entry in metadata.get("managedFields") or ()
    )


async def _check_current(service: LLMService, cluster: Cluster) -> None:
    """What cannot be taken back must follow from the service as it is now, not as it was seen.

    That is a deletion, and what is made for a service that is being deleted: it goes, too, as soon as it is
    owned, also if it was there before (`--cascade=orphan`).
    """
    live = await cluster.read(KIND, service.key.namespace, service.key.name)
    metadata = live["metadata"] if live else {}
    seen = (service.uid, service.generation)
    if is_paused(metadata) or (metadata.get("uid"), metadata.get("generation")) != seen:
        raise TransientError("the service has changed meanwhile", _SEEN_AGAIN)


async def _nudge(service: LLMService, nudge: Nudge, cluster: Cluster, cache: Cache) -> None:
    annotations = {names.POLICY_NUDGE: nudge.value}
    try:
        cache.put(await cluster.annotate("Pod", service.key.namespace, nudge.pod.name, annotations))
    except ApiError as error:
        if error.code != 404:  # the pod is gone, and with it the need
            raise
        cache.discard(service.key, "Pod", nudge.pod.name)
    ACTIONS.labels("nudge", "Pod").inc()
