"""Plans to begin with: SeaLLM's, and one in which the largest services are placed first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace_operator.placement.problem import Group, Plan, count_engines, make_plan, pack, sizes_up_to
from headrace_operator.placement.score import Scorer


def allocate(scorer: Scorer, size: int, most_members: int, out_of_time: Callable[[], bool]) -> Iterator[Plan]:
    """Yield the plans that groups of `size` GPUs come to, one engine more in each, until no more fits
    [SeaLLM, Algorithm 1].

    Each time the service with most unserved requests gets an engine in the group with the least rate of
    requests, of those that have room. For a service without any that no group has room for, the least used of
    the small ones are merged (our reading of "until all services can be placed").
    """
    nodes = scorer.nodes
    groups = [Group(size, ()) for _ in range(sum(gpus // size for gpus in nodes.gpus))]
    full: set[int] = set()  # services that nothing has room for
    while len(full) < len(scorer.services) and not out_of_time():
        plan = make_plan(groups)
        unserved = [each.unserved for each in scorer.standings(plan)]
        service = max(set(range(len(unserved))) - full, key=lambda each: (unserved[each], -each))
        added = _add(scorer, groups, service, most_members)
        if added is None:
            full.add(service)
        else:
            groups = added
            yield make_plan(groups)


def place_largest_first(scorer: Scorer, most_members: int) -> Plan:
    """Place each service once, on the fewest GPUs: alone while GPUs are free, then beside who is asked least.

    The largest go first, since they find room least easily.
    """
    nodes = scorer.nodes
    groups: list[Group] = []
    order = sorted(
        range(len(scorer.services)),
        key=lambda each: (scorer.fewest[each], scorer.services[each].weight_bytes),
        reverse=True,
    )
    for service in order:
        alone = Group(scorer.fewest[service], (service,))
        if pack(make_plan([*groups, alone]), nodes) is not None:
            groups.append(alone)
        else:
            groups = _join(scorer, groups, service, most_members) or groups
    while pack(make_plan([*groups, Group(1, ())]), nodes) is not None:
        groups.append(Group(1, ()))
    return make_plan(groups)


def _add(scorer: Scorer, groups: list[Group], service: int, most_members: int) -> list[Group] | None:
    """Give the service one engine more; None if nothing has room."""
    joined = _join(scorer, groups, service, most_members)
    if joined is not None or any(service in group.members for group in groups):
        return joined
    smallest = min(group.gpus for group in groups)
    small = [group for group in _by_rate(scorer, groups) if group.gpus == smallest]
    for wanted in sizes_up_to(scorer.nodes.most_gpus):
        if wanted < scorer.fewest[service] or wanted // smallest > len(small):
            continue
        merged = small[: wanted // smallest]
        members = {service}.union(*(group.members for group in merged))
        group = Group(wanted, tuple(sorted(members)))
        left = _without(groups, *merged)
        if (
            len(members) <= most_members
            and scorer.fits(group)
            and pack(make_plan([*left, group]), scorer.nodes) is not None
        ):
            return [*left, group]
    return None


def _join(scorer: Scorer, groups: list[Group], service: int, most_members: int) -> list[Group] | None:
    """Have the service join the group with the least rate of requests that has room; None if none has."""
    for group in _by_rate(scorer, groups):
        if service not in group.members and len(group.members) < most_members:
            joined = group.joined_by(service)
            if scorer.fits(joined):
                return [*_without(groups, group), joined]
    return None


def _by_rate(scorer: Scorer, groups: list[Group]) -> list[Group]:
    engines = count_engines(groups)
    rates = [len(each.requests) / max(engines[number], 1) for number, each in enumerate(scorer.services)]
    return sorted(groups, key=lambda group: sum(rates[member] for member in group.members))


def _without(groups: list[Group], *taken: Group) -> list[Group]:
    left = list(groups)
    for group in taken:
        left.remove(group)
    return left
