"""Ratios over seeds with their intervals, and whether a win holds over the whole sensitivity grid."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

# 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
NORMAL = 1.960  # with more


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval; low and high are the value itself where one seed gives no interval."""

    value: float
    low: float
    high: float
    seeds: int = field(default=0, compare=False)  # how many it is over; 0 where that was not told

    def __str__(self) -> str:
        """`0.42 (0.38 to 0.47)`, `0.42 (one seed)`, or the value alone."""
        if self.seeds == 1:
            return f"{self.value:.2f} (one seed)"
        if self.low == self.high:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def mean(values: Sequence[float]) -> Estimate:
    """Estimate the mean; the interval is Student's t over the values. ValueError without any."""
    if not values:
        raise ValueError("no values to take a mean of")
    middle = statistics.fmean(values)
    if len(values) == 1:
        return Estimate(middle, middle, middle, 1)
    degrees = len(values) - 1
    t = STUDENT[degrees - 1] if degrees <= len(STUDENT) else NORMAL
    half = t * statistics.stdev(values) / math.sqrt(len(values))
    return Estimate(middle, middle - half, middle + half, len(values))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Estimate the geometric mean of ours / theirs, paired by seed, with the t interval of its logarithm.

    ValueError unless all are above zero and there are as many of ours as of theirs.
    """
    if len(ours) != len(theirs) or min((*ours, *theirs), default=0) <= 0:
        raise ValueError("a ratio needs pairs of values above zero")
    logs = mean([math.log(our / their) for our, their in zip(ours, theirs, strict=True)])
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.seeds)


def keyed(name: str, found: Estimate) -> dict[str, float]:
    """Name an estimate's figures: `NAME`, with `NAME_low` and `NAME_high`, or `NAME_seeds` 1."""
    made = {name: found.value}
    if found.seeds == 1:
        made[f"{name}_seeds"] = 1
    elif found.seeds:
        made |= {f"{name}_low": found.low, f"{name}_high": found.high}
    return made


def compare_with_one(found: Estimate, *, lower_is_better: bool = True) -> str:
    """Call a ratio `better`, `worse`, `not distinguishable` (from 1), or `one seed`, which says nothing."""
    if found.seeds == 1:
        return "one seed"
    if found.low <= 1 <= found.high:
        return "not distinguishable"
    return "better" if (found.value < 1) == lower_is_better else "worse"


def wins_everywhere(ratios: Iterable[float], *, lower_is_better: bool = True) -> bool:
    """Tell whether every grid point's ratio is on the good side of 1; False of none."""
    found = list(ratios)
    return bool(found) and all(value < 1 if lower_is_better else value > 1 for value in found)
