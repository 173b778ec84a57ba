"""The actions that lead from what is to what should be, in order; none at the fixpoint. Pure.

An object is written when it is absent, when what we applied differs from what we would apply (by hash:
notices removed fields too), or when someone changed a field of ours (by comparison: fields of others are
theirs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace_operator import names
from headrace_operator.cache import concerns
from headrace_operator.desired import Manifest, owner
from headrace_operator.observe import Observed, Pod
from headrace_operator.quantity import same_quantity

# Seconds until a nudge that brought no confirmation is repeated: the ConfigMap and the pod reach the
# kubelet on separate watches, so a nudge can be too early. Doubles with each repetition. After an outage of
# the API server the kubelet's watches may be late by a minute: so long, repetitions stay close.
_FIRST_REPEAT = 0.4
_CLOSE_REPEAT = 5.0
_LAST_REPEAT = 30.0
_CLOSE_REPEATS = 20  # a minute and a half
_IMMUTABLE = {"ResourceClaimTemplate"}
# Fields, with those that hold them, whose values the API server may write otherwise than we did.
_QUANTITIES = {("resources", "requests"), ("resources", "limits"), ("emptyDir", "sizeLimit")}


@dataclass(frozen=True, slots=True)
class Apply:
    """Write our fields of an object; `creates` when none of the service's own is known to exist."""

    manifest: Manifest
    creates: bool


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an owned object, exactly the one with this uid."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Nudge:
    """Change the pod's policy-nudge annotation to `value`."""

    pod: Pod
    value: str


Action = Apply | Delete | Nudge


def plan(
    wanted: Iterable[Manifest], observed: Observed, policy_hash: str, nudged: Mapping[str, float], now: float
) -> tuple[Action, ...]:
    """Actions in order. `nudged`: when each pod (by uid) was nudged last; `now`: the same clock."""
    wanted = tuple(wanted)
    return (
        *_applies(wanted, observed),
        *_leftovers(wanted, observed),
        *(
            Nudge(pod, _next_value(pod, policy_hash))
            for pod in unconfirmed(observed, policy_hash)
            if _due(pod, policy_hash, nudged) <= now
        ),
    )


def next_nudge(observed: Observed, policy_hash: str, nudged: Mapping[str, float]) -> float | None:
    """When the next nudge is due, on the clock of `nudged`; None when every engine has answered."""
    return min((_due(pod, policy_hash, nudged) for pod in unconfirmed(observed, policy_hash)), default=None)


def unconfirmed(observed: Observed, policy_hash: str) -> Iterable[Pod]:
    """Ready pods that were heard from and still run another policy document than this one."""
    for pod in observed.ready:
        status = observed.report(pod).status
        if status is None or status.engine.state == "Stock":
            continue
        if policy_hash not in {status.policy.applied_hash, status.policy.rejected_hash}:
            yield pod


def _applies(wanted: Iterable[Manifest], observed: Observed) -> Iterable[Action]:
    for manifest in wanted:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        live = observed.objects.get((kind, name))
        if live is None or owner(live) != owner(manifest):
            yield Apply(manifest, creates=True)
        elif _recorded_hash(live) != _recorded_hash(manifest) or not contains(live, manifest):
            if kind in _IMMUTABLE and not contains(live.get("spec"), manifest["spec"]):
                yield Delete(kind, name, live["metadata"]["uid"])
            yield Apply(manifest, creates=False)


def _leftovers(wanted: Iterable[Manifest], observed: Observed) -> Iterable[Delete]:
    """What the service owns and no longer wants: its claims for devices, which alone may be unwanted.

    A copy that someone made of an object is not its own, even if it has our labels and names an owner.
    """
    owners = {owner(manifest) for manifest in wanted}
    kept = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in wanted}
    own = {names.claim_template(key) for manifest in wanted if (key := concerns(manifest))}
    for (kind, name), live in observed.objects.items():
        ours = kind in _IMMUTABLE and name in own and owner(live) in owners
        if ours and (kind, name) not in kept:
            yield Delete(kind, name, live["metadata"]["uid"])


def contains(live: Any, ours: Any, parent: str = "", *, quantity: bool = False) -> bool:
    """Whether `live` has every field that we set, with our value; other fields are not looked at.

    `parent` is the field that holds them, and `quantity` says whether they are Kubernetes quantities.
    """
    if live is None:
        return not ours  # the API server leaves out what is empty
    if isinstance(ours, Mapping):
        return isinstance(live, Mapping) and all(
            contains(live.get(key), value, key, quantity=quantity or (parent, key) in _QUANTITIES)
            for key, value in ours.items()
        )
    if isinstance(ours, list):
        return isinstance(live, list) and _contains_items(live, ours)
    return same_quantity(live, ours) if quantity else bool(live == ours)


def _contains_items(live: list[Any], ours: list[Any]) -> bool:
    """Lists of named things may hold others' items too; other lists are ours as a whole."""
    for key in ("mountPath", "name"):
        if all(isinstance(item, Mapping) and key in item for item in (*live, *ours)):
            found = {item[key]: item for item in live}
            return all(contains(found.get(item[key]), item) for item in ours)
    return len(live) == len(ours) and all(map(contains, live, ours))


def _recorded_hash(item: Mapping[str, Any]) -> str | None:
    return (item["metadata"].get("annotations") or {}).get(names.APPLIED_HASH)


def _repeats(pod: Pod, policy_hash: str) -> int | None:
    """How often the nudge for this document was repeated; None if there was none yet."""
    given, _, nonce = pod.nudge.partition("-")
    if given != policy_hash:
        return None
    return int(nonce) if nonce.isdigit() else 0


def _due(pod: Pod, policy_hash: str, nudged: Mapping[str, float]) -> float:
    repeats = _repeats(pod, policy_hash)
    if repeats is None or pod.uid not in nudged:
        return float("-inf")
    if repeats >= _CLOSE_REPEATS:
        return nudged[pod.uid] + _LAST_REPEAT
    return nudged[pod.uid] + min(_FIRST_REPEAT * 2.0**repeats, _CLOSE_REPEAT)


def _next_value(pod: Pod, policy_hash: str) -> str:
    repeats = _repeats(pod, policy_hash)
    return policy_hash if repeats is None else f"{policy_hash}-{repeats + 1}"
