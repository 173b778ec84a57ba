"""Carries out a plan's actions, after making sure that nothing of someone else's is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
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

Place = tuple[str, str]  # kind and name of an object
Against = dict[Place, RefusedError | ApiError]

_COLLECTED_AGAIN = 2.0  # seconds until the garbage collector is worth another look
_SCALE = "Scale"  # how a Deployment's replicas are called apart from it
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


async def carry_out(
    hand: Hand,
    actions: Iterable[Action],
    *,
    apart: bool = False,
    withheld: Mapping[str, RefusedError] = MappingProxyType({}),
) -> Against:
    """All actions: objects in their order, then nudges side by side. What was written goes into the cache.

    Raises TransientError before anything is written, RefusedError or ApiError at any point, but before if it
    can be known. `apart`: what stands against one object does not keep the others from being written; it is
    returned, and of a Deployment the replicas are written nevertheless. `withheld`: kinds of which nothing is
    to be written, with what stands against them.
    """
    actions = tuple(actions)
    against: Against = {
        place(each): withheld[place(each)[0]] for each in actions if place(each)[0] in withheld
    }

    async def attempt(action: Apply | Delete, step: Callable[[], Awaitable[None]]) -> None:
        error = await _refusal(hand, _write_of(action), step)
        if error and not apart:
            raise error
        if error:
            against[place(action)] = error

    for action in actions:
        if isinstance(action, Apply) and place(action) not in against:
            await attempt(action, partial(_check, hand, action))
    due = [action for action in actions if place(action) not in against]
    if any(isinstance(action, Delete) or (isinstance(action, Apply) and action.creates) for action in due):
        await _check_current(hand.service, hand.cluster)
    for action in due:
        if place(action) not in against and not isinstance(action, Nudge):
            await attempt(action, partial(_do, hand, action))
    against |= await _scaled(hand, actions, against)
    if not any(kind == "ConfigMap" for kind, _ in against):  # else pods have no other policy to look at
        await asyncio.gather(*(_nudge(hand, action) for action in due if isinstance(action, Nudge)))
    return against


async def _refusal(
    hand: Hand, write: Write, step: Callable[[], Awaitable[None]]
) -> RefusedError | ApiError | None:
    """What stands against a write; None when the step is done. What was refused lately is not tried."""
    key = hand.service.key
    standing = hand.refusals.standing(key, write, hand.now)
    if standing:
        return standing
    try:
        await step()
    except RefusedError as error:
        refused = error
    except ApiError as error:
        if not is_denial(error):
            if not error.of_the_object:
                raise
            return error
        refused = refusal(*write[:2], error, hand.refusals.tried(key, write) + 1)
    else:
        return None
    hand.refusals.add(key, write, refused, hand.now)
    return refused


def _write_of(action: Apply | Delete) -> Write:
    return *place(action), content_hash(action.manifest if isinstance(action, Apply) else action.uid)


async def _scaled(hand: Hand, actions: Iterable[Action], against: Collection[Place]) -> Against:
    """Write the replicas of a Deployment that stays as it is otherwise; what stands against that, too."""
    for action in actions:
        if isinstance(action, Apply) and place(action)[0] == "Deployment" and place(action) in against:
            return await _scale(hand, action)
    return {}


async def _scale(hand: Hand, action: Apply) -> Against:
    name, replicas = action.manifest["metadata"]["name"], action.manifest["spec"]["replicas"]
    key, where = hand.service.key, (_SCALE, name)
    live = next((each for each in hand.cache.owned(key) if _place_of(each) == place(action)), None)
    if action.creates or live is None or live["spec"].get("replicas") == replicas:
        return {}
    content = content_hash(replicas)
    if hand.pace.wait(key, where, content, hand.now) > 0.0:
        return {}  # somebody else scales it, too: it is looked at again when the refusal is

    async def write() -> None:
        await hand.cluster.scale(key.namespace, name, replicas)
        hand.pace.wrote(key, where, content, hand.now)
        ACTIONS.labels("scale", "Deployment").inc()
        found = await hand.cluster.read("Deployment", key.namespace, name)
        if found is not None:
            hand.cache.put(found)

    error = await _refusal(hand, (*where, content), write)
    return {where: error} if error else {}


def _place_of(body: Mapping[str, Any]) -> Place:
    return body["kind"], body["metadata"]["name"]


async def _do(hand: Hand, action: Apply | Delete) -> None:
    if isinstance(action, Delete):
        await _delete(hand, action)
        return
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
