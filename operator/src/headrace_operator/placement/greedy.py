"""SeaLLM's search [Algorithm 1]: equal groups, and the service that is served least gets one more engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from headrace_operator.placement.problem import Group, Plan, make_plan, pack, sizes_up_to
from headrace_operator.placement.score import Scorer


def allocate(scorer: Scorer, size: int, most_members: int, out_of_time: Callable[[], bool]) -> Iterator[Plan]:
    """Yield the plans that groups of `size` GPUs come to, one engine more in each, until no more fits.

    Each time the service with most unserved requests gets an engine in the group with the least rate of
    requests, of those that have room. For a service without any that no group has room for,
    small ones are merged, the least used (our reading of "until all services can be placed").
    """
    nodes = scorer.nodes
    groups = [Group(size, ()) for _ in range(nodes.gpus // size * nodes.count)]
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


def _add(scorer: Scorer, groups: list[Group], service: int, most_members: int) -> list[Group] | None:
    """Give the service one engine more; None if nothing has room."""
    engines = Counter(member for group in groups for member in group.members)
    rates = [len(each.requests) / max(engines[number], 1) for number, each in enumerate(scorer.services)]

    def rate(group: Group) -> float:
        return sum(rates[member] for member in group.members)

    def joined(group: Group) -> Group:
        return Group(group.gpus, tuple(sorted({*group.members, service})))

    def has_room(group: Group) -> bool:
        return (
            service not in group.members and len(group.members) < most_members and scorer.fits(joined(group))
        )

    by_rate = sorted(groups, key=rate)
    for group in by_rate:
        if has_room(group):
            return [*_without(groups, group), joined(group)]
    if engines[service]:
        return None
    small = [group for group in by_rate if group.gpus == min(each.gpus for each in groups)]
    for wanted in sizes_up_to(scorer.nodes.gpus):
        if wanted < scorer.fewest[service] or wanted // small[0].gpus > len(small):
            continue
        merged = small[: wanted // small[0].gpus]
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


def _without(groups: list[Group], *taken: Group) -> list[Group]:
    left = list(groups)
    for group in taken:
        left.remove(group)
    return left
