"""Plans near another: an engine more, less or elsewhere, two that change places, groups merged or split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

from headrace_operator.placement.problem import Group, Plan, make_plan, pack
from headrace_operator.placement.score import Scorer


def neighbours(plan: Plan, scorer: Scorer, most_members: int, random: Random) -> Iterator[Plan]:
    """Yield plans that differ from `plan` by one change and fit, each once, in random order."""
    changes = list(_changes(plan, len(scorer.services), most_members))
    random.shuffle(changes)
    engines = Counter(member for group in plan for member in group.members)
    seen = {plan}
    for old, new in changes:
        left = Counter(engines)
        left.subtract(member for number in old for member in plan[number].members)
        left.update(member for group in new for member in group.members)
        if any(left[member] <= 0 for member in engines) or not all(map(scorer.fits, new)):
            continue
        kept = [group for number, group in enumerate(plan) if number not in old]
        changed = make_plan([*kept, *new])
        if changed not in seen:
            seen.add(changed)
            if pack(changed, scorer.nodes) is not None:
                yield changed


_Change = tuple[tuple[int, ...], tuple[Group, ...]]
"""Numbers of groups that go, and groups that come."""


def _changes(plan: Plan, services: int, most_members: int) -> Iterator[_Change]:
    for number, group in enumerate(plan):
        for member in group.members:
            yield (number,), (_less(group, member),)
        if len(group.members) < most_members:
            for service in range(services):
                if service not in group.members:
                    yield (number,), (_more(group, service),)
        yield from _splits(number, group)
        for other, second in enumerate(plan[number + 1 :], number + 1):
            if second != group:
                yield from _exchanges(number, group, other, second, most_members)
            both = set(group.members) | set(second.members)
            if group.gpus == second.gpus and len(both) <= most_members:
                merged = Group(2 * group.gpus, tuple(sorted(both)))
                yield (number, other), (merged,)
                if not both:
                    for service in range(services):
                        yield (number, other), (_more(merged, service),)


def _splits(number: int, group: Group) -> Iterator[_Change]:
    """Halve a group: all members in both halves, or each in one of them."""
    half, odd = divmod(group.gpus, 2)
    if odd:
        return
    yield (number,), (Group(half, group.members), Group(half, group.members))
    for chosen in range(1 << len(group.members)):
        one = tuple(member for place, member in enumerate(group.members) if chosen >> place & 1)
        two = tuple(member for place, member in enumerate(group.members) if not chosen >> place & 1)
        if one >= two:
            yield (number,), (Group(half, one), Group(half, two))


def _exchanges(number: int, group: Group, other: int, second: Group, most_members: int) -> Iterator[_Change]:
    """Move a member from one group to the other, or have two change places."""
    for here, there, moved, settled in ((group, second, number, other), (second, group, other, number)):
        for member in here.members:
            if member not in there.members and len(there.members) < most_members:
                yield (moved, settled), (_less(here, member), _more(there, member))
    for member in group.members:
        for exchanged in second.members:
            if member not in second.members and exchanged not in group.members:
                yield (
                    (number, other),
                    (
                        _more(_less(group, member), exchanged),
                        _more(_less(second, exchanged), member),
                    ),
                )


def _less(group: Group, member: int) -> Group:
    return Group(group.gpus, tuple(each for each in group.members if each != member))


def _more(group: Group, member: int) -> Group:
    return Group(group.gpus, tuple(sorted((*group.members, member))))
