"""The actions that lead from what is to what should be, in order; none at the fixpoint. Pure.

An object is written when it is absent, when what we applied differs from what we would apply (by hash:
notices removed fields too), or when someone changed a field of ours (by comparison: fields of others are
theirs).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace_operator import names
from headrace_operator.api.bodies import Body, is_ending
from headrace_operator.api.quantity import same_quantity
from headrace_operator.decide.observation import Observation
from headrace_operator.desired import Manifest, owner

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


Action = Apply | Delete


def target_of(action: Action) -> tuple[str, str]:
    """Return kind and name of the object that an action writes."""
    match action:
        case Apply(manifest):
            return manifest["kind"], manifest["metadata"]["name"]
        case Delete(kind, name):
            return kind, name


def plan_actions(wanted: Iterable[Manifest], observed: Observation) -> tuple[Action, ...]:
    """Return the writes and deletions of owned objects, in order."""
    wanted = tuple(wanted)
    return *_plan_applies(wanted, observed), *_plan_deletions(wanted, observed)


def _plan_applies(wanted: Iterable[Manifest], observed: Observation) -> Iterable[Action]:
    for manifest in wanted:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        live = observed.objects.get((kind, name))
        if live is None or owner(live) != owner(manifest):
            yield Apply(manifest, creates=True)
        elif _recorded_hash(live) != _recorded_hash(manifest) or not contains_fields(live, manifest):
            if kind in _IMMUTABLE and not contains_fields(live.get("spec"), manifest["spec"]):
                yield Delete(kind, name, live["metadata"]["uid"])
            yield Apply(manifest, creates=False)


def _plan_deletions(wanted: Iterable[Manifest], observed: Observation) -> Iterable[Delete]:
    """Delete what the service owns and no longer wants: its DRA claim template, which alone can be unwanted.

    A copy that someone made of an object is not its own, even if it has our labels and names an owner.
    """
    owners = {owner(manifest) for manifest in wanted}
    wanted_names = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in wanted}
    own = {names.claim_template(key) for manifest in wanted if (key := names.owner_key_of(manifest))}
    for (kind, name), live in observed.objects.items():
        ours = kind in _IMMUTABLE and name in own and owner(live) in owners
        if ours and (kind, name) not in wanted_names:
            yield Delete(kind, name, live["metadata"]["uid"])


def plan_pool_deletions(
    wanted: Iterable[Manifest], observed: Observation, uid: str, lost: Collection[str]
) -> tuple[Delete, ...]:
    """Delete what the GPUPool with this uid owns and no longer wants: what its former groups had.

    Devices that pods have stay until those are gone, unless the claim is `lost`: their next pod would find no
    claim.
    """
    wanted_names = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in wanted}
    return tuple(
        Delete(kind, name, live["metadata"]["uid"])
        for (kind, name), live in observed.objects.items()
        if (kind, name) not in wanted_names
        and owner(live) == uid
        and not is_ending(live)
        and (name in lost or not _is_reserved(live))
    )


def _is_reserved(live: Body) -> bool:
    return bool((live.get("status") or {}).get("reservedFor"))


def contains_fields(live: Any, ours: Any, parent: str = "", *, quantity: bool = False) -> bool:
    """Tell whether `live` has every field that we set, with our value; other fields are not looked at.

    `parent` is the field that holds them, and `quantity` says whether they are Kubernetes quantities.
    """
    if live is None:
        return not ours  # the API server leaves out what is empty
    if isinstance(ours, Mapping):
        return isinstance(live, Mapping) and all(
            contains_fields(live.get(key), value, key, quantity=quantity or (parent, key) in _QUANTITIES)
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
            return all(contains_fields(found.get(item[key]), item) for item in ours)
    return len(live) == len(ours) and all(map(contains_fields, live, ours))


def _recorded_hash(item: Body) -> str | None:
    return (item["metadata"].get("annotations") or {}).get(names.APPLIED_HASH)
