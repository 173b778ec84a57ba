"""GPUPool: which services' engines share GPUs, and take turns on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import ValidationError, model_validator

from headrace_engine.contracts.turn_group import TurnOrder
from headrace_operator.api.base import Block, list_map, live, rule, ruled
from headrace_operator.api.bodies import Body, is_ending
from headrace_operator.api.placement import (
    AUTO_GROUP,
    GroupName,
    PlacedService,
    Placement,
    PlacementStatus,
    PlanStatus,
    ServiceName,
)
from headrace_operator.api.service import Key, explain, key_of
from headrace_operator.api.status import StatusCondition, seen
from headrace_operator.errors import SpecInvalidError

MOST_GROUPS = 32
MOST_MEMBERS = 16

_ONCE = "groups: a service is in one group only: take it out of the others"
_SOMETHING = "set groups, placement, or both"
_PLACED_ONCE = "placement.services: mode Auto makes their groups: take them out of groups"
_NAMES = f"groups: names that begin with {AUTO_GROUP} are those that mode Auto makes: rename them"
_NOT_AUTO = "!has(self.groups) || !has(self.placement) || self.placement.mode != 'Auto' || "


class Group(Block):
    """Services whose engines share a GPU."""

    name: GroupName = live("Name of the group, unique in its pool.")
    members: tuple[ServiceName, ...] = live(
        "Names of LLMServices of the pool's namespace. While several of their engines have requests, one "
        "computes a step at a time. Those that ask for the same accelerator.dra share the devices of one "
        "ResourceClaim, which replaces their pods.",
        min_length=1,
        max_length=MOST_MEMBERS,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    turn_order: TurnOrder = live(
        "Who computes next. FairShare: who has had least of the GPU lately, by its requests over their usual "
        "time. DoublingBudget: whose next request has least left of its budget, as in SeaLLM.",
        "FairShare",
    )


class PoolSpec(Block):
    """Who shares GPUs with whom."""

    groups: tuple[Group, ...] = live(
        "Groups of services that share a GPU.",
        (),
        min_length=1,
        max_length=MOST_GROUPS,
        json_schema_extra=list_map("name"),
    )

    placement: Placement | None = live(
        "Has a plan made from what services are asked: who should share GPUs.", None
    )

    model_config = ruled(
        rule("has(self.groups) || has(self.placement)", _SOMETHING),
        rule(
            "!has(self.groups) || "
            "self.groups.all(g, g.members.all(m, self.groups.exists_one(h, m in h.members)))",
            _ONCE,
        ),
        rule(
            f"{_NOT_AUTO}self.placement.services.all(s, !self.groups.exists(g, s.name in g.members))",
            _PLACED_ONCE,
        ),
        rule(f"{_NOT_AUTO}self.groups.all(g, !g.name.startsWith('{AUTO_GROUP}'))", _NAMES),
    )

    @model_validator(mode="after")
    def _in_one_group(self) -> PoolSpec:
        if not (self.groups or self.placement):
            raise ValueError(_SOMETHING)
        named = [member for group in self.groups for member in group.members]
        if len(named) != len(set(named)):
            raise ValueError(_ONCE)
        if self.placement and self.placement.is_auto:
            if any(service.name in named for service in self.placement.services):
                raise ValueError(_PLACED_ONCE)
            if any(group.name.startswith(AUTO_GROUP) for group in self.groups):
                raise ValueError(_NAMES)
        return self


class PoolStatus(Block):
    """What the operator last saw."""

    observed_generation: int = seen("Generation of the spec that this status is about.", 0, ge=0)
    conditions: tuple[StatusCondition, ...] = seen(
        "Accepted: the groups can be as the spec asks. Ready: every group takes turns. Placed: every group "
        "shares devices. Planned: status.plan is what spec.placement asks for. AsPlanned: services run as "
        "status.placement says. Stalled: the spec is not carried out before somebody changes something.",
        (),
        max_length=8,
        json_schema_extra=list_map("type"),
    )
    plan: PlanStatus | None = seen("The last plan for spec.placement.")
    placement: PlacementStatus | None = seen("The plan that mode Auto carries out; absent: none yet.")


@dataclass(frozen=True, slots=True)
class GPUPool:
    """A parsed GPUPool with what the operator needs of its metadata.

    `groups`: those of the spec, and those that mode Auto makes. `placed`: where it puts services.
    """

    key: Key
    uid: str
    generation: int
    created: str  # RFC 3339, UTC: sorts as text
    groups: tuple[Group, ...]
    placement: Placement | None
    placed: tuple[PlacedService, ...] = ()

    @property
    def places_services(self) -> bool:
        """Whether its plan is carried out."""
        return self.placement is not None and self.placement.is_auto

    def find_placed(self, service: str) -> PlacedService | None:
        """Return where a service is put; None if it is as its own spec says."""
        return next((placed for placed in self.placed if placed.name == service), None)

    def group_of(self, service: str) -> Group | None:
        """Return the group that a service is in; None if it is in none."""
        return next((group for group in self.groups if service in group.members), None)

    @property
    def services(self) -> tuple[str, ...]:
        """Names of the services that it groups or places."""
        grouped = [member for group in self.groups for member in group.members]
        placed = self.placement.services if self.placement and self.places_services else ()
        return tuple(dict.fromkeys([*grouped, *(service.name for service in placed)]))


def placement_in(status: Body) -> PlacementStatus | None:
    """Read the plan that is carried out; None if there is none, or another release made it."""
    try:
        return PlacementStatus.model_validate(status.get("placement"))
    except ValidationError:
        return None


def parse_pool(body: Body) -> GPUPool:
    """Read a GPUPool from the API server's JSON; SpecInvalidError names the field and the fix."""
    metadata = body["metadata"]
    try:
        spec = PoolSpec.model_validate(body.get("spec") or {})
    except ValidationError as error:
        raise SpecInvalidError(explain(error)) from error
    placed = _placed(spec, body.get("status") or {})
    return GPUPool(
        key=key_of(body),
        uid=metadata["uid"],
        generation=metadata.get("generation", 1),
        created=metadata.get("creationTimestamp") or "",
        groups=(*spec.groups, *_made_groups(placed)),
        placement=spec.placement,
        placed=placed,
    )


def _placed(spec: PoolSpec, status: Body) -> tuple[PlacedService, ...]:
    """Return where the services are put that the spec still has placed."""
    placement = placement_in(status)
    if placement is None or spec.placement is None or not spec.placement.is_auto:
        return ()
    asked = {service.name for service in spec.placement.services}
    return tuple(placed for placed in placement.services if placed.name in asked)


def _made_groups(placed: Iterable[PlacedService]) -> Iterator[Group]:
    members: dict[str, list[str]] = {}
    for service in placed:
        if service.group is not None:
            members.setdefault(service.group, []).append(service.name)
    for name, found in members.items():
        yield Group(name=name, members=tuple(found))


def parse_pools(bodies: Iterable[Body]) -> list[GPUPool]:
    """Read those that are not being deleted and whose spec is valid, the oldest first."""
    found = []
    for body in bodies:
        if not is_ending(body):
            try:
                found.append(parse_pool(body))
            except SpecInvalidError:
                continue
    return sorted(found, key=lambda pool: (pool.created, pool.key))
