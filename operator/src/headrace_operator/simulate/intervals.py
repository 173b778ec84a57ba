"""How sure a simulated figure is: 95 % intervals from simulations of other traffic and step times. Pure.

Each draw serves resampled traffic (`headrace_engine.sim.workloads.resample`) with step times off by a factor
drawn from the known error of that model and GPU. What the draws differ by is the interval's width (the
bootstrap's standard error, with Student's t for so few draws: Efron and Tibshirani 1993, chapters 6 and 12).
Two settings meet the same draws, so that their difference is surer than either.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields

from headrace_engine.cost.known_error import FIGURES, Figure
from headrace_operator.placement.problem import SAME_SHARE
from headrace_operator.simulate.figures import Figures, Spread

DRAWS = 24  # of today's setting and of the best one
REPLICA_DRAWS = 8  # of each number of replicas that is tried
STUDENT = {DRAWS: 2.069, REPLICA_DRAWS: 2.365}  # 97.5 % quantiles, one degree of freedom less than draws
NORMAL = 1.96  # a known error holds for 95 % of the runs

_NAMES = tuple(field.name for field in fields(Spread))


@dataclass(frozen=True, slots=True)
class Draw:
    """One simulation beside the trace's own: seed of its traffic, and how many times as long steps take."""

    seed: int
    step_factor: float


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure of the trace's own simulation, and the ends of its interval."""

    value: float
    low: float
    high: float


Intervals = Mapping[str, Interval]
"""By name: `met_all`, `met_ttft`, ... as shares, `ttft_mean`, `e2e_p95`, ... in seconds."""


def plan_draws(count: int, off_by: float, seed: int) -> list[Draw]:
    """Plan `count` draws; step factors are quantiles of a log-normal of which 95 % lies within `off_by`."""
    spread = statistics.NormalDist(0.0, math.log(off_by) / NORMAL) if off_by > 1 else None
    factors = [math.exp(spread.inv_cdf((number + 0.5) / count)) if spread else 1.0 for number in range(count)]
    random.Random(f"steps {seed}").shuffle(factors)  # noqa: S311  (no secret)
    return [Draw(seed * 1000 + number, factor) for number, factor in enumerate(factors)]


def find_intervals(
    figures: Figures, draws: Sequence[Figures], off_by: Mapping[Figure, float]
) -> dict[str, Interval]:
    """Find the interval of each figure; a time's is no narrower than its own known error."""
    value, drawn = _flat(figures), [_flat(each) for each in draws]
    found = {}
    for name in _common(value, drawn):
        several = [each[name] for each in drawn]
        if name.startswith("met_"):
            found[name] = _of_share(value[name], several)
        else:
            known = next(off_by[figure] for figure in FIGURES if name.startswith(figure))
            found[name] = _of_time(value[name], several, math.log(known))
    return found


def compare(
    new: Figures, old: Figures, new_draws: Sequence[Figures], old_draws: Sequence[Figures]
) -> dict[str, Interval]:
    """Find the interval of each change, draw by draw: shares are subtracted, times divided (new / old).

    What the simulator is off by, it is off by in both: the known error counts by the step times alone.
    """
    pairs = [(_flat(one), _flat(other)) for one, other in zip(new_draws, old_draws, strict=True)]
    now, then = _flat(new), _flat(old)
    found = {}
    for name in _common(now, [then, *(each for pair in pairs for each in pair)]):
        if name.startswith("met_"):
            differences = [one[name] - other[name] for one, other in pairs]
            found[name] = _of_share(now[name] - then[name], differences, least=-1.0)
        else:
            ratios = [one[name] / other[name] for one, other in pairs]
            found[name] = _of_time(now[name] / then[name], ratios)
    return found


def excludes_no_change(change: Intervals) -> bool:
    """Tell whether the gain that makes a setting worth a change is there at both ends of its interval.

    That gain is requests that meet their targets, or where these are as many, mean E2E.
    """
    gained = change["met_all"]
    if abs(gained.value) > SAME_SHARE:
        return gained.low > 0
    return "e2e_mean" in change and change["e2e_mean"].high < 1


def _of_share(value: float, draws: Sequence[float], least: float = 0.0) -> Interval:
    half = STUDENT[len(draws)] * statistics.stdev(draws)
    return Interval(value, max(least, value - half), min(1.0, value + half))


def _of_time(value: float, draws: Sequence[float], known: float = 0.0) -> Interval:
    """Take the interval on a logarithmic scale: queues grow by factors; `known` is the logarithm of one."""
    half = max(known, STUDENT[len(draws)] * statistics.stdev([math.log(each) for each in draws]))
    return Interval(value, value * math.exp(-half), value * math.exp(half))


def _flat(figures: Figures) -> dict[str, float]:
    """Name every figure that has an interval; times that no request has are left out."""
    spreads = {"ttft": figures.ttft, "tpot": figures.tpot, "e2e": figures.e2e}
    times = {
        f"{figure}_{name}": value
        for figure, spread in spreads.items()
        if spread is not None
        for name, value in zip(_NAMES, astuple(spread), strict=True)
        if value > 0
    }
    return {f"met_{name}": share for name, share in figures.met.items()} | times


def _common(first: Mapping[str, float], others: Sequence[Mapping[str, float]]) -> list[str]:
    return [name for name in first if all(name in other for other in others)]
