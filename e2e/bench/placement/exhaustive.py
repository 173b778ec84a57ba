"""The best of all plans: GPUs divided into powers of two in every way, and all that each group may hold."""

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, product

from headrace_operator.placement.problem import Group, Plan, make_plan, pack, sizes_up_to
from headrace_operator.placement.score import Scorer
from headrace_operator.placement.search import MOST_MEMBERS, Found


def find_best(scorer: Scorer) -> Found:
    """Score every plan in which each service has an engine: seconds for eight GPUs; `Found()` of none."""
    plans = (Found(plan, scorer.score(plan)) for plan in every_plan(scorer))
    return min(plans, key=lambda found: found.score, default=Found())


def every_plan(scorer: Scorer) -> Iterator[Plan]:
    """Yield the plans that use all GPUs, each once; an empty group is one that nothing uses."""
    wanted = set(range(len(scorer.services)))
    for counts in _divisions(scorer.nodes.total_gpus, sizes_up_to(scorer.nodes.most_gpus)):
        bare = make_plan([Group(size, ()) for size, count in counts for _ in range(count)])
        if pack(bare, scorer.nodes) is None:
            continue
        held = [combinations_with_replacement(_contents(scorer, size), count) for size, count in counts]
        for chosen in product(*held):
            groups = [group for of_size in chosen for group in of_size]
            if {member for group in groups for member in group.members} == wanted:
                yield make_plan(groups)


def _divisions(gpus: int, sizes: list[int]) -> Iterator[list[tuple[int, int]]]:
    """Yield the ways of adding up to `gpus`, as sizes and how many of each."""
    *smaller, size = sizes
    if not smaller:
        yield [(size, gpus)]
        return
    for count in range(gpus // size + 1):
        for rest in _divisions(gpus - count * size, smaller):
            yield [*rest, (size, count)]


def _contents(scorer: Scorer, size: int) -> list[Group]:
    services = range(len(scorer.services))
    groups = (
        Group(size, members) for count in range(MOST_MEMBERS + 1) for members in combinations(services, count)
    )
    return [group for group in groups if scorer.fits(group)]
