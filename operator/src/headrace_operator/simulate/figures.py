"""What one simulated setting comes to, and which setting to recommend. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from headrace_operator.placement.problem import SAME_SHARE

ENOUGH = 0.9  # share of requests that shall meet every target
WORTH = (
    0.95  # a change that gains less than 5 % of the mean E2E is none: the simulator's own error is like that
)
STARVES = 2.0  # times the longest wait of the current setting
STARVES_FROM = 5.0  # seconds; shorter waits starve nobody


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and percentiles, in seconds."""

    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Figures:
    """One setting on the trace; everything is simulated."""

    requests: int  # measured: without warm-up and cool-down
    refused: int  # of all, by routing.maxQueue
    ttft: Spread | None  # None: no request came so far
    tpot: Spread | None  # mean gap of each request; None also if every output is one token
    e2e: Spread | None
    longest_wait: float  # seconds until first scheduled
    preemptions: int  # of all requests
    met: Mapping[str, float]  # share of requests by target: those of ttft, tpot, e2e that are set, and `all`


def is_worth_a_change(new: Figures, old: Figures) -> bool:
    """Tell whether `new` is worth a change: more requests meet their targets, or as many and sooner."""
    gained = new.met["all"] - old.met["all"]
    if abs(gained) > SAME_SHARE:
        return gained > 0
    return mean_e2e(new) < WORTH * mean_e2e(old)


def is_as_good(new: Figures, old: Figures) -> bool:
    """Tell whether `new` is at all better than `old`, by the same measure."""
    gained = new.met["all"] - old.met["all"]
    if abs(gained) > SAME_SHARE:
        return gained > 0
    return mean_e2e(new) <= mean_e2e(old)


def starves_someone(new: Figures, old: Figures) -> bool:
    """Tell whether someone waits far longer with `new` than anyone with `old`."""
    return new.longest_wait > max(STARVES * old.longest_wait, STARVES_FROM)


def find_best(figures: Sequence[Figures], current: int) -> int:
    """Return the index of the setting to recommend: `current`, unless another gains and starves nobody.

    Of those worth it whose share of met targets is within a point of the highest, the one with the lowest
    mean E2E.
    """
    old = figures[current]
    worth = [
        number
        for number, each in enumerate(figures)
        if is_worth_a_change(each, old) and not starves_someone(each, old)
    ]
    if not worth:
        return current
    highest = max(figures[number].met["all"] for number in worth)
    close = [number for number in worth if figures[number].met["all"] >= highest - SAME_SHARE]
    return min(close, key=lambda number: mean_e2e(figures[number]))


def mean_e2e(figures: Figures) -> float:
    """Return the mean in seconds; infinity if no request was finished."""
    return figures.e2e.mean if figures.e2e else inf
