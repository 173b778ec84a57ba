"""Whether a new plan is worth the moves, and where it puts each service. Pure.

Each move replaces engines, so a plan has to save GPUs or have notably more requests in time, and what was
changed last must have stood for a while [SeaLLM, section 4.3, has intervals; the thresholds are ours].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import count

from headrace_operator.api.placement import (
    AUTO_GROUP,
    PlacedService,
    PlacementStatus,
    PlannedGroup,
    PlannedMember,
    PlannedServiceStatus,
    PlanStatus,
)
from headrace_operator.placement.problem import ATTAINMENT, SAME_SHARE

GAIN_PERCENT = 5  # of all requests, that come to be in time of those that should
BETTER_SECONDS = 600.0  # after a change, until another that has more requests in time
FEWER_SECONDS = 3600.0  # the same, for one that saves GPUs

_ENOUGH, _SAME = round(100 * ATTAINMENT), round(100 * SAME_SHARE)  # percent


def adopt(before: PlacementStatus | None, plan: PlanStatus, now: str) -> PlacementStatus | None:
    """Return the plan that is to be carried out: `before`, or the new one. `now`: RFC 3339."""
    placed = place(plan, before.services if before else ())
    if before is not None and placed == before.services:
        return before
    stood = _seconds(before.time, now) if before else FEWER_SECONDS
    better = _gain(plan.services) >= GAIN_PERCENT and stood >= BETTER_SECONDS
    fewer = plan.gpus < plan.gpus_today and not _is_worse(plan.services) and stood >= FEWER_SECONDS
    return PlacementStatus(time=now, services=placed) if better or fewer else before


def place(plan: PlanStatus, before: Sequence[PlacedService]) -> tuple[PlacedService, ...]:
    """Return where a plan puts each service, by name.

    A group that keeps a member, and has others, keeps its name and GPUs. Who is left alone gets GPUs of its
    own: its engine starts anew for their memory, and elsewhere that can be before the old one ends.
    """
    engines = Counter(member.service for group in plan.groups for member in group.members)
    names = dict(_name_groups(plan.groups, engines, before))
    placed = {
        member.service: PlacedService(
            name=member.service,
            group=names.get(number),
            replicas=engines[member.service],
            tensor_parallel_size=group.gpus,
            **(_memory(member) if number in names else {}),
        )
        for number, group in enumerate(plan.groups)
        for member in group.members
    }
    return tuple(placed[name] for name in sorted(placed))


def _memory(member: PlannedMember) -> dict[str, int]:
    return {
        "gpu_memory_utilization_percent": member.gpu_memory_utilization_percent,
        "kv_cache_memory_bytes": member.kv_cache_memory_bytes,
    }


def _name_groups(
    groups: Sequence[PlannedGroup], engines: Counter[str], before: Sequence[PlacedService]
) -> Iterator[tuple[int, str]]:
    """Name those of the groups, by number, whose GPUs a claim of the pool holds."""
    left = {
        number: {member.service for member in group.members}
        for number, group in enumerate(groups)
        if len(group.members) > 1 and all(engines[member.service] == 1 for member in group.members)
    }
    known = {placed.group for placed in before if placed.group}
    for name in sorted(known):
        of_it = [placed for placed in before if placed.group == name]
        members, gpus = {placed.name for placed in of_it}, of_it[0].tensor_parallel_size
        staying = [number for number in left if groups[number].gpus == gpus and left[number] & members]
        if staying:
            best = max(staying, key=lambda number: (len(left[number] & members), len(left[number]), -number))
            del left[best]
            yield best, name
    # Not one whose GPUs may still be somebody's.
    free = (name for number in count(1) if (name := f"{AUTO_GROUP}{number}") not in known)
    for number in left:
        yield number, next(free)


def _gain(services: Sequence[PlannedServiceStatus]) -> float:
    """Return the percent of all requests that come to be in time, of those that should; all if unknown."""
    asked = sum(service.requests for service in services)
    gained = 0
    for service in services:
        if service.planned_percent is not None and service.today_percent is not None:
            more = min(service.planned_percent, _ENOUGH) - min(service.today_percent, _ENOUGH)
            gained += more * service.requests
        elif service.planned_percent is not None:
            gained += 100 * service.requests
    return gained / asked if asked else 0.0


def _is_worse(services: Sequence[PlannedServiceStatus]) -> bool:
    return any(
        service.planned_percent < min(service.today_percent, _ENOUGH) - _SAME
        for service in services
        if service.planned_percent is not None and service.today_percent is not None
    )


def _seconds(since: str, now: str) -> float:
    return (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds()
