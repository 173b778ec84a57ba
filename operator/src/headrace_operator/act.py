"""Carries out a plan's actions, after making sure that nothing of someone else's is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace_operator import names
from headrace_operator.admission import is_denial, refusal
from headrace_operator.api import KIND, LLMService, Reason, is_paused
from headrace_operator.cache import Cache
from headrace_operator.cluster import Cluster
from headrace_operator.desired import content_hash, owner
from headrace_operator.errors import ApiError, RefusedError, TransientError
from headrace_operator.metrics import ACTIONS
from headrace_operator.pace import Pace, place
from headrace_operator.plan import Action, Apply, Delete, Nudge
from headrace_operator.preflight import check_claim_template, check_deployment
from headrace_operator.refusals import Refusals, Write

_Step = Callable[["Hand", Apply], Awaitable[None]]

_COLLECTED_AGAIN = 2.0  # seconds until the garbage collector is worth another look
_SEEN_AGAIN = 1.0  # seconds; the watch is late, and its event will come earlier or not at all


@dataclass(frozen=True, slots=True)
class Hand:
    """What one service's objects are written with; `now` in seconds, by the reconciler's clock."""

    service: LLMService
    cluster: Cluster
    cache: Cache
    pace: Pace
    refusals: Refusals
    now: float


async def carry_out(hand: Hand, actions: Iterable[Action], *, apart: bool = False) -> None:
    """All actions: objects in their order, then nudges side by side. What was written goes into the cache.

    Raises TransientError before anything is written, RefusedError or ApiError at any point, but before if it
    can be known. `apart`: what stands against one object does not keep the others from being written, and is
    raised at the end.
    """
    actions = tuple(actions)
    against: dict[tuple[str, str], RefusedError | ApiError] = {}

    async def attempt(action: Apply, step: _Step) -> None:
        error = await _refusal(hand, action, step)
        if error and not apart:
            raise error
        if error:
            against[place(action)] = error

    for apply in actions:
        if isinstance(apply, Apply):
            await attempt(apply, _check)
    due = [action for action in actions if place(action) not in against]
    if any(isinstance(action, Delete) or (isinstance(action, Apply) and action.creates) for action in due):
        await _check_current(hand.service, hand.cluster)
    for action in due:
        if isinstance(action, Apply):
            await attempt(action, _write)
        elif isinstance(action, Delete):
            await _delete(hand, action)
    await asyncio.gather(*(_nudge(hand, action) for action in due if isinstance(action, Nudge)))
    if against:
        raise min(against.values(), key=lambda error: not isinstance(error, RefusedError))


async def _refusal(hand: Hand, action: Apply, step: _Step) -> RefusedError | ApiError | None:
    """What stands against an object; None when the step is done. What was refused lately is not tried."""
    key, write = hand.service.key, _write_of(action)
    standing = hand.refusals.standing(key, write, hand.now)
    if standing:
        return standing
    try:
        await step(hand, action)
    except RefusedError as error:
        refused = error
    except ApiError as error:
        if not is_denial(error):
            if not error.of_the_object:
                raise
            return error
        refused = refusal(*place(action), error, hand.refusals.tried(key, write) + 1)
    else:
        return None
    hand.refusals.add(key, write, refused, hand.now)
    return refused


def _write_of(action: Apply) -> Write:
    return *place(action), content_hash(action.manifest)


async def _write(hand: Hand, action: Apply) -> None:
    hand.cache.put(await hand.cluster.apply(action.manifest))
    hand.pace.did(hand.service.key, [action], hand.now)
    ACTIONS.labels("apply", action.manifest["kind"]).inc()


async def _delete(hand: Hand, action: Delete) -> None:
    await hand.cluster.delete(action.kind, hand.service.key.namespace, action.name, action.uid)
    hand.cache.discard(hand.service.key, action.kind, action.name)
    hand.pace.did(hand.service.key, [action], hand.now)
    ACTIONS.labels("delete", action.kind).inc()


async def _check(hand: Hand, action: Apply) -> None:
    """Raise what stands against it; nothing is written."""
    (kind, name), service, cluster = place(action), hand.service, hand.cluster
    found = None
    if action.creates or kind == "Deployment":
        found = await cluster.read(kind, service.key.namespace, name)
    if action.creates:
        _check_free(service, kind, name, found)
    if kind == "Deployment":
        await check_deployment(action.manifest, found, cluster)
    elif kind == "ResourceClaimTemplate":
        if action.creates:
            await check_claim_template(action.manifest, cluster)
    elif hand.refusals.tried(service.key, _write_of(action)):
        await cluster.apply(action.manifest, dry_run=True)  # or those before it would be written for nothing


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


async def _nudge(hand: Hand, nudge: Nudge) -> None:
    service, cluster, cache = hand.service, hand.cluster, hand.cache
    annotations = {names.POLICY_NUDGE: nudge.value}
    try:
        cache.put(await cluster.annotate("Pod", service.key.namespace, nudge.pod.name, annotations))
    except ApiError as error:
        if error.code != 404:  # the pod is gone, and with it the need
            raise
        cache.discard(service.key, "Pod", nudge.pod.name)
    ACTIONS.labels("nudge", "Pod").inc()
