"""Plans near another: an engine more, less or elsewhere, two that change places, groups merged or split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from random import Random

from headrace_operator.placement.problem import Group, Plan, make_plan, pack
from headrace_operator.placement.score import Scorer


def neighbours(plan: Plan, scorer: Scorer, most_members: int, random: Random) -> Iterator[Plan]:
    """Yield plans that differ from `plan` by one change and fit, each once, in random order."""
    numbers = range(len(plan))
    places = [*((number,) for number in numbers), *combinations(numbers, 2)]
    random.shuffle(places)
    engines = _count(plan)
    seen = {plan}
    for old in places:
        kept = [group for number, group in enumerate(plan) if number not in old]
        left = engines - _count(plan[number] for number in old)
        changes = list(_changes([plan[number] for number in old], range(len(scorer.services)), most_members))
        random.shuffle(changes)
        for new in changes:
            changed = make_plan([*kept, *new])
            if (
                changed not in seen
                and (left + _count(new)).keys() >= engines.keys()
                and all(map(scorer.fits, new))
                and pack(changed, scorer.nodes) is not None
            ):
                yield changed
            seen.add(changed)


_Change = list[Group]
"""Groups that come where others go."""


def _changes(old: Sequence[Group], services: Iterable[int], most_members: int) -> Iterator[_Change]:
    """Yield what may come in the place of one group, or of two."""
    if len(old) == 1:
        yield from _of_one(old[0], services, most_members)
    elif old[0] != old[1]:
        yield from _exchanges(old[0], old[1], most_members)
    if len(old) == 2 and old[0].gpus == old[1].gpus:
        yield from _merges(old[0], old[1], services, most_members)


def _of_one(group: Group, services: Iterable[int], most_members: int) -> Iterator[_Change]:
    """Take an engine out, add one, or halve the group."""
    for member in group.members:
        yield [_less(group, member)]
    if len(group.members) < most_members:
        for service in services:
            if service not in group.members:
                yield [_more(group, service)]
    half, odd = divmod(group.gpus, 2)
    if not odd:
        yield [Group(half, group.members), Group(half, group.members)]
        for one in _parts(group.members, len(group.members)):
            other = tuple(member for member in group.members if member not in one)
            yield [Group(half, one), Group(half, other)]


def _exchanges(one: Group, other: Group, most_members: int) -> Iterator[_Change]:
    """Move a member from one group to the other, or have two change places."""
    for here, there in ((one, other), (other, one)):
        for member in here.members:
            if member not in there.members and len(there.members) < most_members:
                yield [_less(here, member), _more(there, member)]
    for member in one.members:
        for exchanged in other.members:
            if member not in other.members and exchanged not in one.members:
                yield [_more(_less(one, member), exchanged), _more(_less(other, exchanged), member)]


def _merges(one: Group, other: Group, services: Iterable[int], most_members: int) -> Iterator[_Change]:
    """Merge two groups, with any of their members; for groups without, with any service."""
    members = sorted({*one.members, *other.members} or services)
    for chosen in _parts(members, most_members):
        yield [Group(2 * one.gpus, chosen)]


def _parts(members: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    for count in range(min(most, len(members)) + 1):
        yield from combinations(members, count)


def _count(groups: Iterable[Group]) -> Counter[int]:
    return Counter(member for group in groups for member in group.members)


def _less(group: Group, member: int) -> Group:
    return Group(group.gpus, tuple(each for each in group.members if each != member))


def _more(group: Group, member: int) -> Group:
    return Group(group.gpus, tuple(sorted((*group.members, member))))
