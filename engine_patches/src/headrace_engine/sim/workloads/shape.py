"""Reshaping workloads: stretches of a trace, other mean rates, made-up arrival times. All seeded."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headrace_engine.sim.workloads.arrival import Arrival


@dataclass(frozen=True, slots=True)
class Scale:
    """How lengths shrink: `length / divisor`, rounded up, at most the limit, at least one token."""

    prompt_divisor: float
    output_divisor: float
    prompt_limit: int
    output_limit: int

    def __post_init__(self) -> None:
        if min(self.prompt_divisor, self.output_divisor, self.prompt_limit, self.output_limit) <= 0:
            raise ValueError(f"divisors and limits must be above zero: {self}")

    def __call__(self, arrival: Arrival) -> Arrival:
        """The request with its lengths scaled; it shares no prefix any more."""
        return Arrival(
            at=arrival.at,
            prompt_tokens=_shrink(arrival.prompt_tokens, self.prompt_divisor, self.prompt_limit),
            output_tokens=_shrink(arrival.output_tokens, self.output_divisor, self.output_limit),
        )


def cut_window(arrivals: Iterable[Arrival], start: float, seconds: float) -> list[Arrival]:
    """Return those that arrive in [start, start + seconds), with times counted from `start`."""
    return [
        dataclasses.replace(arrival, at=arrival.at - start)
        for arrival in arrivals
        if start <= arrival.at < start + seconds
    ]


def take_every(arrivals: Iterable[Arrival], every: int, offset: int = 0) -> Iterator[Arrival]:
    """Yield every n-th request from `offset` on; different offsets below `every` share no request."""
    return itertools.islice(arrivals, offset, None, every)


def keep_fitting(arrivals: Iterable[Arrival], longest: int) -> list[Arrival]:
    """Keep those whose prompt and output fit in `longest` tokens; the others are dropped, not cut."""
    return [arrival for arrival in arrivals if arrival.tokens <= longest]


def take_segment(arrivals: Sequence[Arrival], count: int, seed: int) -> list[Arrival]:
    """Take `count` requests in a row: seeds 0, 1, 2, ... from the start on, -1, -2, ... from the end back.

    Seeds of one sign share no request. ValueError for a seed beyond what the trace has: it would repeat
    others.
    """
    segments = len(arrivals) // count if count > 0 else 0
    if not -segments <= seed < segments:
        raise ValueError(
            f"segment {seed} of {count} requests: the trace has {len(arrivals)}, {segments} such segments"
        )
    start = seed * count + (0 if seed >= 0 else len(arrivals))
    first = arrivals[start].at
    return [dataclasses.replace(each, at=each.at - first) for each in arrivals[start : start + count]]


def at_rate(arrivals: Sequence[Arrival], rate: float) -> list[Arrival]:
    """Stretch the times of the requests to a mean of `rate` requests/s; bursts stay bursts."""
    if rate <= 0:
        raise ValueError(f"a rate of {rate} requests/s is not above zero")
    if not arrivals or arrivals[-1].at == arrivals[0].at:
        raise ValueError("a stretch of time needs requests that arrive at different times")
    start = arrivals[0].at
    stretch = len(arrivals) / rate / (arrivals[-1].at - start)
    return [dataclasses.replace(arrival, at=(arrival.at - start) * stretch) for arrival in arrivals]


def draw_renewal(
    lengths: Sequence[Arrival], count: int, rate: float, seed: int, variation: float = 1.0
) -> list[Arrival]:
    """Draw `count` requests from `lengths`, none twice before all are used, at made-up arrival times.

    Gaps are Gamma distributed with coefficient of variation `variation`; 1 is Poisson. They are stretched so
    that the mean rate is exactly `rate`: a load means the same with each seed.
    """
    if not lengths:
        raise ValueError("there are no requests to draw from")
    if variation <= 0:
        raise ValueError(f"a variation of {variation} is not above zero")
    chance = random.Random(f"renewal {seed}")  # noqa: S311  (no secret)
    drawn: list[Arrival] = []
    while len(drawn) < count:
        drawn += chance.sample(lengths, len(lengths))
    shape = 1 / variation**2
    at = 0.0
    arrivals = []
    for each in drawn[:count]:
        arrivals.append(dataclasses.replace(each, at=at))
        at += chance.gammavariate(shape, 1 / shape)
    return at_rate(arrivals, rate)


def beginning_alike(arrivals: Iterable[Arrival], tokens: int, block: int = 16) -> list[Arrival]:
    """Put all prompts behind the same `tokens` more, as many as fill blocks of `block` tokens.

    What prompts shared before they share no more.
    """
    ids = tuple(range(tokens // block))
    return [
        dataclasses.replace(each, prompt_tokens=each.prompt_tokens + tokens, prefix=ids, prefix_block=block)
        for each in arrivals
    ]


def spread_times(arrivals: Sequence[Arrival], grid: float, seed: int) -> list[Arrival]:
    """Spread times that were recorded on a grid of `grid` seconds evenly at random over each cell.

    Mooncake's conversation trace has a 3 s grid; its requests would arrive in batches otherwise.
    """
    chance = random.Random(f"spread {seed}")  # noqa: S311  (no secret)
    moved = [dataclasses.replace(each, at=each.at + chance.random() * grid) for each in arrivals]
    return sorted(moved, key=lambda arrival: arrival.at)


def _shrink(length: int, divisor: float, limit: int) -> int:
    return max(1, min(limit, math.ceil(length / divisor)))
