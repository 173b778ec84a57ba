"""Goodput by bisection: the highest rung of a ladder of loads at which 90 % of requests meet their targets.

A search asks for runs and is told their figures; many searches go on side by side, so that each round fills
the processes. It takes attainment to fall as load rises, which a sweep would not need, and finds goodput four
times as finely with the same number of runs.
"""

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import TypeVar

from e2e.bench.runs.comparison import MET, Kind, attained
from e2e.bench.runs.engine import Case
from e2e.bench.runs.pool import Figures
from headrace_engine.sim import metrics
from headrace_engine.sim.metrics import Goodput

Result = TypeVar("Result")
Search = Generator[Sequence[Case], Sequence[Figures], Result]
"""Asks for runs, is sent the figures of each, returns what it found."""
Key = TypeVar("Key", bound=Hashable)
Measure = Callable[[Sequence[Case]], Mapping[Case, Figures]]
At = Callable[[float], Case]
"""Of a load, the run of default stock there."""


def goodput(loads: Sequence[float], at: At, kind: Kind, target: str) -> Search[Goodput]:
    """Search for the goodput of this kind on a ladder of loads; `target` as `metrics` names it."""
    return (yield from _bisect(loads, lambda load: kind(at(load)), target, -1, {}))


def best(loads: Sequence[float], at: At, kinds: Sequence[Kind], target: str) -> Search[tuple[Goodput, Kind]]:
    """Search for the highest goodput of these. Who fails where the best so far holds can't be better."""
    found, winner = (yield from goodput(loads, at, kinds[0], target)), kinds[0]
    for kind in kinds[1:]:
        if found.bound == ">":
            break
        held = max((place for place, load in enumerate(loads) if load <= found.load), default=0)
        [figures] = yield [kind(at(loads[held]))]
        share = attained(figures, target)
        if share >= MET:
            known = {loads[held]: share}
            other = yield from _bisect(loads, lambda load, kind=kind: kind(at(load)), target, held, known)  # type: ignore[misc]
            if other.load > found.load or other.bound == ">":
                found, winner = other, kind
    return found, winner


def run(
    searches: Mapping[Key, Search[Result]], measure: Measure
) -> tuple[dict[Key, Result], dict[Case, Figures]]:
    """Run searches; returns what each found, and all runs."""
    found: dict[Key, Result] = {}
    made: dict[Case, Figures] = {}
    asked: dict[Key, Sequence[Case]] = {}

    def go_on(key: Key, told: Sequence[Figures] | None) -> None:
        try:
            search = searches[key]
            asked[key] = next(search) if told is None else search.send(told)
        except StopIteration as stop:
            found[key] = stop.value
            asked.pop(key, None)

    for key in searches:
        go_on(key, None)
    while asked:
        made |= measure(list(dict.fromkeys(case for cases in asked.values() for case in cases)))
        for key, cases in list(asked.items()):
            go_on(key, [made[case] for case in cases])
    return {key: found[key] for key in searches}, made


def _bisect(
    loads: Sequence[float], case_at: At, target: str, low: int, shares: dict[float, float]
) -> Search[Goodput]:
    """Bisect. `low`: a rung at which it holds, -1 for below the first; `shares`: what is known by load."""
    high = len(loads)
    while high - low > 1:
        middle = (low + high) // 2
        [figures] = yield [case_at(loads[middle])]
        shares[loads[middle]] = share = attained(figures, target)
        if share >= MET:
            low = middle
        else:
            high = middle
    return metrics.goodput(list(shares), list(shares.values()), MET)
