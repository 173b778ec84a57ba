"""GPUPool: which services' engines share GPUs, and take turns on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from pydantic import StringConstraints, ValidationError, model_validator

from headrace_engine.contracts.turn_group import TurnOrder
from headrace_operator.api.base import Block, list_map, live, rule, ruled
from headrace_operator.api.bodies import Body
from headrace_operator.api.placement import Placement, PlanStatus, ServiceName
from headrace_operator.api.service import Key, explain, key_of
from headrace_operator.api.status import StatusCondition, seen
from headrace_operator.errors import SpecInvalidError

MOST_GROUPS = 32
MOST_MEMBERS = 16

GroupName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?$", max_length=20)]

_ONCE = "groups: a service is in one group only: take it out of the others"
_SOMETHING = "set groups, placement, or both"


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
    )

    @model_validator(mode="after")
    def _in_one_group(self) -> PoolSpec:
        if not (self.groups or self.placement):
            raise ValueError(_SOMETHING)
        named = [member for group in self.groups for member in group.members]
        if len(named) != len(set(named)):
            raise ValueError(_ONCE)
        return self


class PoolStatus(Block):
    """What the operator last saw."""

    observed_generation: int = seen("Generation of the spec that this status is about.", 0, ge=0)
    conditions: tuple[StatusCondition, ...] = seen(
        "Accepted: the groups can be as the spec asks. Ready: every group takes turns. Placed: every group "
        "shares devices. Planned: status.plan is what spec.placement asks for.",
        (),
        max_length=8,
        json_schema_extra=list_map("type"),
    )
    plan: PlanStatus | None = seen("The last plan for spec.placement.")


@dataclass(frozen=True, slots=True)
class GPUPool:
    """A parsed GPUPool with what the operator needs of its metadata."""

    key: Key
    uid: str
    generation: int
    created: str  # RFC 3339, UTC: sorts as text
    groups: tuple[Group, ...]
    placement: Placement | None


def parse_pool(body: Body) -> GPUPool:
    """Read a GPUPool from the API server's JSON; SpecInvalidError names the field and the fix."""
    metadata = body["metadata"]
    try:
        spec = PoolSpec.model_validate(body.get("spec") or {})
    except ValidationError as error:
        raise SpecInvalidError(explain(error)) from error
    return GPUPool(
        key=key_of(body),
        uid=metadata["uid"],
        generation=metadata.get("generation", 1),
        created=metadata.get("creationTimestamp") or "",
        groups=spec.groups,
        placement=spec.placement,
    )


def parse_pools(bodies: Iterable[Body]) -> list[GPUPool]:
    """Read those that are not being deleted and whose spec is valid, the oldest first."""
    found = []
    for body in bodies:
        if "deletionTimestamp" not in body["metadata"]:
            try:
                found.append(parse_pool(body))
            except SpecInvalidError:
                continue
    return sorted(found, key=lambda pool: (pool.created, pool.key))
