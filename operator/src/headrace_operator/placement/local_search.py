"""Plans near another: an engine more, less or elsewhere, two that change places, groups merged or split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from random import Random

from headrace_operator.placement.problem import Group, Plan, count_engines, make_plan, pack
from headrace_operator.placement.score import Scorer


def neighbours(plan: Plan, scorer: Scorer, most_members: int, random: Random) -> Iterator[Plan]:
    """Yield plans that differ from `plan` by one change and fit, each once, in random order."""
    numbers = range(len(plan))
    places = [*((number,) for number in numbers), *combinations(numbers, 2)]
    random.shuffle(places)
    services = range(len(scorer.services))
    engines = count_engines(plan)
    seen = {plan}
    for old in places:
        kept = [group for number, group in enumerate(plan) if number not in old]
        group, *others = (plan[number] for number in old)
        left = engines - count_engines([group, *others])
        if others:
            changes = list(_of_two(group, others[0], services, most_members))
        else:
            changes = list(_of_one(group, services, most_members))
        random.shuffle(changes)
        for new in changes:
            changed = make_plan([*kept, *new])
            if (
                changed not in seen
                and (left + count_engines(new)).keys() >= engines.keys()
                and all(map(scorer.fits, new))
                and pack(changed, scorer.nodes) is not None
            ):
                yield changed
            seen.add(changed)


def _of_one(group: Group, services: Iterable[int], most_members: int) -> Iterator[list[Group]]:
    """Take an engine out, add one, or halve the group."""
    for member in group.members:
        yield [group.left_by(member)]
    if len(group.members) < most_members:
        for service in services:
            if service not in group.members:
                yield [group.joined_by(service)]
    half, odd = divmod(group.gpus, 2)
    if not odd:
        yield [Group(half, group.members), Group(half, group.members)]
        for one in _parts(group.members, len(group.members)):
            other = tuple(member for member in group.members if member not in one)
            yield [Group(half, one), Group(half, other)]


def _of_two(one: Group, other: Group, services: Iterable[int], most_members: int) -> Iterator[list[Group]]:
    """Exchange members, or merge both groups if they are of one size: with any of their members, or with any
    service if they have none.
    """
    if one != other:
        yield from _exchanges(one, other, most_members)
    if one.gpus == other.gpus:
        for chosen in _parts(sorted({*one.members, *other.members} or services), most_members):
            yield [Group(2 * one.gpus, chosen)]


def _exchanges(one: Group, other: Group, most_members: int) -> Iterator[list[Group]]:
    """Move a member from one group to the other, or have two change places."""
    for here, there in ((one, other), (other, one)):
        for member in here.members:
            if member not in there.members and len(there.members) < most_members:
                yield [here.left_by(member), there.joined_by(member)]
    for member in one.members:
        for exchanged in other.members:
            if member not in other.members and exchanged not in one.members:
                yield [
                    one.left_by(member).joined_by(exchanged),
                    other.left_by(exchanged).joined_by(member),
                ]


def _parts(members: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    for count in range(min(most, len(members)) + 1):
        yield from combinations(members, count)
