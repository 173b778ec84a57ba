"""Writes the objects that a plan names, each after a check; what was refused lately is not tried again.

check every object ─► read the owner again ─► write in order ─► scale a Deployment that was refused
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from headrace_operator.decide.admission import describe_denial, is_denial
from headrace_operator.decide.plan import Action, Apply, Delete, target_of
from headrace_operator.decide.refusals import Refusals, Write
from headrace_operator.desired import content_hash
from headrace_operator.errors import ApiError, RefusedError
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.client import Cluster
from headrace_operator.metrics import ACTIONS
from headrace_operator.run.preflight import SeenOwner, check_apply, check_unchanged
from headrace_operator.run.write_throttle import WriteThrottle

Target = tuple[str, str]  # kind and name of an object
Objections = dict[Target, RefusedError | ApiError]

_SCALE = "Scale"  # how a Deployment's replicas are called apart from it


@dataclass(frozen=True, slots=True)
class Context:
    """What one owner's objects are written with; `now` in seconds, by the reconciler's clock."""

    owner: SeenOwner
    cluster: Cluster
    cache: Cache
    throttle: WriteThrottle
    refusals: Refusals
    now: float


async def execute_actions(
    context: Context,
    actions: Iterable[Action],
    *,
    independently: bool = False,
    withheld: Mapping[str, RefusedError] = MappingProxyType({}),
) -> Objections:
    """Execute all actions in their order. What was written goes into the cache.

    Raises TransientError before anything is written, RefusedError or ApiError at any point, but before if it
    can be known. With `independently`, what stands against one object does not keep the others from being
    written; it is returned, and of a Deployment the replicas are written nevertheless. `withheld` names the
    kinds of which nothing is to be written, with what stands against them.
    """
    actions = tuple(actions)
    objections: Objections = {
        target_of(each): withheld[target_of(each)[0]] for each in actions if target_of(each)[0] in withheld
    }

    async def attempt(action: Action, step: Callable[[], Awaitable[None]]) -> None:
        error = await _attempt_write(context, _write_of(action), step)
        if error and not independently:
            raise error
        if error:
            objections[target_of(action)] = error

    for action in actions:
        if isinstance(action, Apply) and target_of(action) not in objections:
            await attempt(action, partial(_check, context, action))
    due = [action for action in actions if target_of(action) not in objections]
    if any(isinstance(action, Delete) or action.creates for action in due):
        await check_unchanged(context.owner, context.cluster)
    for action in due:
        if target_of(action) not in objections:
            await attempt(action, partial(_write, context, action))
    return objections | await _scale_refused_deployment(context, actions, objections)


def is_policy_written(objections: Collection[Target]) -> bool:
    """Tell whether nothing stood against the ConfigMap with the policy."""
    return not any(kind == "ConfigMap" for kind, _ in objections)


async def _attempt_write(
    context: Context, write: Write, step: Callable[[], Awaitable[None]]
) -> RefusedError | ApiError | None:
    """Do the step; what stands against it, or None. What was refused lately is not tried."""
    key = context.owner.key
    standing = context.refusals.current_refusal(key, write, context.now)
    if standing:
        return standing
    try:
        await step()
    except RefusedError as error:
        refused = error
    except ApiError as error:
        if not is_denial(error):
            if not error.is_about_object:
                raise
            return error
        refused = describe_denial(*write[:2], error, context.refusals.count_refusals(key, write) + 1)
    else:
        return None
    context.refusals.record_refusal(key, write, refused, context.now)
    return refused


def _write_of(action: Action) -> Write:
    return *target_of(action), content_hash(action.manifest if isinstance(action, Apply) else action.uid)


async def _check(context: Context, action: Apply) -> None:
    was_refused = context.refusals.count_refusals(context.owner.key, _write_of(action)) > 0
    await check_apply(context.owner, action, context.cluster, was_refused=was_refused)


async def _write(context: Context, action: Action) -> None:
    key = context.owner.key
    if isinstance(action, Delete):
        await context.cluster.delete(action.kind, key.namespace, action.name, action.uid)
        context.cache.discard_owned(key, action.kind, action.name)
        ACTIONS.labels("delete", action.kind).inc()
    else:
        context.cache.put(await context.cluster.apply(action.manifest))
        ACTIONS.labels("apply", action.manifest["kind"]).inc()
    context.throttle.record_actions(key, [action], context.now)


async def _scale_refused_deployment(
    context: Context, actions: Iterable[Action], objections: Collection[Target]
) -> Objections:
    """Write the replicas of a Deployment that stays as it is otherwise; what stands against that, too."""
    for action in actions:
        kind, _ = target = target_of(action)
        if isinstance(action, Apply) and kind == "Deployment" and target in objections:
            return await _scale(context, action)
    return {}


async def _scale(context: Context, action: Apply) -> Objections:
    name, replicas = action.manifest["metadata"]["name"], action.manifest["spec"]["replicas"]
    key, target = context.owner.key, (_SCALE, name)
    live = context.cache.owned_object(key, "Deployment", name)
    if action.creates or live is None or live["spec"].get("replicas") == replicas:
        return {}
    content = content_hash(replicas)
    if context.throttle.seconds_until_allowed(key, target, content, context.now) > 0.0:
        return {}  # somebody else scales it, too: it is tried again when the refusal is

    async def write() -> None:
        await context.cluster.scale(key.namespace, name, replicas)
        context.throttle.record_write(key, target, content, context.now)
        ACTIONS.labels("scale", "Deployment").inc()
        found = await context.cluster.read("Deployment", key.namespace, name)
        if found is not None:
            context.cache.put(found)

    error = await _attempt_write(context, (*target, content), write)
    return {target: error} if error else {}
