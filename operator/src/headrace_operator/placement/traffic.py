"""From what sidecars tell of a service's traffic to requests that plans are estimated with.

Sidecars tell sums over windows of time. Requests are made that have them: as many in each window, at random
moments, with lengths of a log-normal distribution that has the mean and the deviation of all (our reading:
SeaLLM's monitor tells means and deviations too, section 3, but not how requests are made of them).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from math import exp, log, sqrt
from random import Random
from statistics import NormalDist
from typing import NamedTuple

from headrace_engine.contracts.traffic import SLOTS, WINDOW_SECONDS, TrafficWindow
from headrace_operator.placement.problem import Request

_NORMAL = NormalDist()
_SLOT_SECONDS = WINDOW_SECONDS / SLOTS


class Lengths(NamedTuple):
    """Mean and standard deviation of a number of tokens."""

    mean: float
    deviation: float

    def draw(self, count: int, random: Random) -> list[int]:
        """Draw so many lengths, in random order: the same part of each part of the distribution, so that few
        have the mean of many.
        """
        if not (self.mean > 0 and self.deviation > 0):
            return [max(1, round(self.mean))] * count
        variance = log(1 + (self.deviation / self.mean) ** 2)
        middle = log(self.mean) - variance / 2
        drawn = [
            max(1, round(exp(middle + sqrt(variance) * _NORMAL.inv_cdf((number + 0.5) / count))))
            for number in range(count)
        ]
        random.shuffle(drawn)
        return drawn


class Span(NamedTuple):
    """A stretch of time; `start` in unix seconds."""

    start: int
    seconds: float

    @property
    def end(self) -> float:
        """When it ends, unix seconds."""
        return self.start + self.seconds

    def select(self, windows: Iterable[TrafficWindow]) -> list[TrafficWindow]:
        """Return the windows that begin in it."""
        return [window for window in windows if self.start <= window.start < self.end]


class Summary(NamedTuple):
    """What a service was asked. `attainment`: share of its requests that met all of their targets."""

    requests: int
    prompt: Lengths
    output: Lengths
    attainment: float
    mean_e2e: float  # seconds


def add_up(windows: Iterable[TrafficWindow]) -> list[TrafficWindow]:
    """Add up what several engines tell of the same windows; by time."""
    found: defaultdict[int, list[TrafficWindow]] = defaultdict(list)
    for window in windows:
        found[window.start].append(window)
    return [
        TrafficWindow(
            start=start,
            arrivals=tuple(map(sum, zip(*(each.arrivals for each in alike), strict=True))),
            prompt_tokens=sum(each.prompt_tokens for each in alike),
            output_tokens=sum(each.output_tokens for each in alike),
            prompt_squares=sum(each.prompt_squares for each in alike),
            output_squares=sum(each.output_squares for each in alike),
            met=sum(each.met for each in alike),
            e2e_seconds=sum(each.e2e_seconds for each in alike),
        )
        for start, alike in sorted(found.items())
    ]


def sum_up(windows: Sequence[TrafficWindow]) -> Summary | None:
    """Sum up a service's windows; None if there was no request."""
    requests = sum(window.requests for window in windows)
    if not requests:
        return None
    return Summary(
        requests,
        _lengths(
            requests,
            sum(window.prompt_tokens for window in windows),
            sum(window.prompt_squares for window in windows),
        ),
        _lengths(
            requests,
            sum(window.output_tokens for window in windows),
            sum(window.output_squares for window in windows),
        ),
        sum(window.met for window in windows) / requests,
        sum(window.e2e_seconds for window in windows) / requests,
    )


def busiest_span(services: Iterable[Iterable[TrafficWindow]], most: int) -> Span:
    """Return the busiest span, as long as even that has at most `most` requests of all services together.

    It is the busiest window if that alone has more; of no seconds without a request.
    """
    counts: Counter[int] = Counter()
    for windows in services:
        for window in windows:
            counts[window.start] += window.requests
    if not counts:
        return Span(0, 0.0)
    starts = range(min(counts), max(counts) + WINDOW_SECONDS, WINDOW_SECONDS)
    before = list(accumulate((counts[start] for start in starts), initial=0))
    for length in range(len(starts), 0, -1):
        sums = [before[first + length] - before[first] for first in range(len(starts) - length + 1)]
        if max(sums) <= most:
            return Span(starts[sums.index(max(sums))], length * WINDOW_SECONDS)
    return Span(counts.most_common(1)[0][0], WINDOW_SECONDS)


def make_requests(
    windows: Iterable[TrafficWindow], span: Span, longest: int, most: int, random: Random
) -> tuple[Request, ...]:
    """Make the requests of a service over `span`, from whose start their times count.

    `longest`: tokens of prompt and output that its engine takes. `most`: requests; later ones are left out.
    """
    inside = span.select(windows)
    summary = sum_up(inside)
    if summary is None:
        return ()
    asked = (
        window.start - span.start + slot * _SLOT_SECONDS
        for window in inside
        for slot, requests in enumerate(window.arrivals)
        for _ in range(requests)
    )
    times = sorted(at + random.random() * _SLOT_SECONDS for at in islice(asked, most))
    prompts = [min(tokens, longest - 1) for tokens in summary.prompt.draw(len(times), random)]
    outputs = summary.output.draw(len(times), random)
    return tuple(
        Request(at, prompt, min(output, longest - prompt))
        for at, prompt, output in zip(times, prompts, outputs, strict=True)
    )


def _lengths(requests: int, tokens: int, squares: float) -> Lengths:
    mean = tokens / requests
    return Lengths(mean, sqrt(max(0.0, squares / requests - mean**2)))
