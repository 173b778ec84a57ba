"""Goodput by bisection: the highest rung of a ladder of loads at which 90 % of requests meet their targets.

A search asks for one run after the other and is told what share met the target; many searches go on side by
side, so that each round fills the processes. It takes attainment to fall as load rises, which a sweep would
not need, and finds goodput four times as finely with the same number of runs.
"""

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from typing import TypeVar

from e2e.bench.runs.comparison import Kind
from e2e.bench.runs.engine import Case
from e2e.bench.runs.pool import Figures
from e2e.bench.runs.setting import Setting
from headrace_engine.sim import metrics
from headrace_engine.sim.metrics import Goodput

MET = 0.9
Result = TypeVar("Result")
Search = Generator[Case, float, Result]
"""Asks for a run, is sent the share of its requests that met the target, returns what it found."""
Key = TypeVar("Key", bound=Hashable)
Measure = Callable[[Sequence[Case]], Mapping[Case, Figures]]


def goodput(setting: Setting, seed: int, kind: Kind) -> Search[Goodput]:
    """Search for the goodput of this kind, on the ladder `setting.loads`."""
    return (yield from _bisect(setting, seed, kind, -1, {}))


def best(setting: Setting, seed: int, kinds: Sequence[Kind]) -> Search[Goodput]:
    """Search for the highest of these kinds. Who fails where the best so far holds can't be better."""
    found = yield from goodput(setting, seed, kinds[0])
    for kind in kinds[1:]:
        if found.bound == ">":
            break
        held = max((place for place, load in enumerate(setting.loads) if load <= found.load), default=0)
        share = yield kind(setting.case(setting.loads[held], seed))
        if share >= MET:
            other = yield from _bisect(setting, seed, kind, held, {setting.loads[held]: share})
            found = max(found, other, key=lambda each: (each.load, each.bound == ">"))
    return found


def run(
    searches: Mapping[Key, tuple[str, Search[Result]]], measure: Measure
) -> tuple[dict[Key, Result], dict[Case, Figures]]:
    """Run searches, each with its target as `metrics` names it; returns what each found, and all runs."""
    found: dict[Key, Result] = {}
    made: dict[Case, Figures] = {}
    asked: dict[Key, Case] = {}

    def go_on(key: Key, share: float | None) -> None:
        try:
            search = searches[key][1]
            asked[key] = next(search) if share is None else search.send(share)
        except StopIteration as stop:
            found[key] = stop.value
            asked.pop(key, None)

    for key in searches:
        go_on(key, None)
    while asked:
        made |= measure(list(dict.fromkeys(asked.values())))
        for key, case in list(asked.items()):
            go_on(key, float(made[case][f"met_{searches[key][0]}"]))
    return {key: found[key] for key in searches}, made


def _bisect(setting: Setting, seed: int, kind: Kind, low: int, shares: dict[float, float]) -> Search[Goodput]:
    """Bisect. `low`: a rung at which it holds, -1 for below the first; `shares`: what is known by load."""
    loads, high = setting.loads, len(setting.loads)
    while high - low > 1:
        middle = (low + high) // 2
        shares[loads[middle]] = share = yield kind(setting.case(loads[middle], seed))
        if share >= MET:
            low = middle
        else:
            high = middle
    return metrics.goodput(list(shares), list(shares.values()), MET)
