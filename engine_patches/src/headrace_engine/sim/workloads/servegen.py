"""Requests like those of a production service's clients, generated after ServeGen (arXiv 2505.09999).

ServeGen publishes, for each client and ten minutes, the rate and the Gamma or Weibull distribution of the
gaps between requests, and for longer windows histograms of lengths. What comes out is synthetic from
production: nobody sent these requests. Lengths are drawn by straight lines between the published quantiles,
independently for prompt and output; clients without published lengths are left out.
"""

from __future__ import annotations

import bisect
import csv
import gzip
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace_engine.sim.workloads.arrival import Arrival

WINDOW = 600.0  # seconds that one published rate holds for
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Window:
    """A client's arrivals during ten minutes from `start` on."""

    start: float
    rate: float  # requests per second
    distribution: str  # of the gaps: Gamma or Weibull
    shape: float


@dataclass(frozen=True, slots=True)
class Client:
    """Windows in order of time; for prompts and outputs the length quantiles from each time on."""

    name: str
    windows: Sequence[Window]
    prompts: Mapping[float, Sequence[float]]
    outputs: Mapping[float, Sequence[float]]


def read_clients(rates: Path, lengths: Path) -> list[Client]:
    """List the clients of a service that have rates and lengths, in the order of their names in the file."""
    windows: defaultdict[str, list[Window]] = defaultdict(list)
    for row in _rows(rates):
        windows[row["client"]].append(
            Window(
                float(row["window_start_s"]),
                float(row["rate_rps"]),
                row["dist"],
                float(row["param1"]),
            )
        )
    sizes: dict[str, defaultdict[str, dict[float, list[float]]]] = {
        field: defaultdict(dict) for field in ("input_tokens", "output_tokens")
    }
    for row in _rows(lengths):
        if row["field"] in sizes:
            quantiles = [float(row[f"p{q * 100:g}"]) for q in QUANTILES]
            sizes[row["field"]][row["client"]][float(row["window_start_s"])] = quantiles
    prompts, outputs = sizes["input_tokens"], sizes["output_tokens"]
    return [
        Client(name, sorted(held, key=lambda window: window.start), prompts[name], outputs[name])
        for name, held in windows.items()
        if name in prompts and name in outputs
    ]


def generate_requests(services: Sequence[Client], start: float, seconds: float, seed: int) -> list[Arrival]:
    """Make the requests of all clients in [start, start + seconds) of the published time.

    Each client sends as many in a window as its rate says. Its gaps have the published shape, stretched to
    fill the window.
    """
    end = start + seconds
    found = []
    for client in services:
        chance = random.Random(f"servegen {seed} {client.name}")  # noqa: S311  (no secret)
        windows = (window for window in client.windows if start - WINDOW < window.start < end)
        for arrival in itertools.chain.from_iterable(_during(client, window, chance) for window in windows):
            if start <= arrival.at < end:
                found.append(replace(arrival, at=arrival.at - start))  # noqa: PERF401  (too long for one line)
    return sorted(found, key=lambda arrival: arrival.at)


def _during(client: Client, window: Window, chance: random.Random) -> Iterator[Arrival]:
    count = math.floor(window.rate * WINDOW + chance.random())
    gaps = [_gap(window, chance) for _ in range(count + 1)]
    stretch = WINDOW / (sum(gaps) or 1.0)
    prompts = client.prompts[_in_force(sorted(client.prompts), window.start)]
    outputs = client.outputs[_in_force(sorted(client.outputs), window.start)]
    for passed in itertools.islice(itertools.accumulate(gaps), count):
        at = window.start + passed * stretch
        yield Arrival(at, _draw(prompts, chance), _draw(outputs, chance), client=client.name)


def _gap(window: Window, chance: random.Random) -> float:
    """Draw the time to the next request, in a unit that does not matter."""
    if window.distribution == "Gamma":
        return chance.gammavariate(window.shape, 1.0)
    return chance.weibullvariate(1.0, window.shape)


def _in_force(times: Sequence[float], now: float) -> float:
    return times[max(0, bisect.bisect_right(times, now) - 1)]


def _draw(quantiles: Sequence[float], chance: random.Random) -> int:
    """Draw a length from these quantiles; flat below the first and above the last."""
    share = chance.random()
    points = list(zip(QUANTILES, quantiles, strict=True))
    if share <= QUANTILES[0]:
        return max(1, round(quantiles[0]))
    for (low, short), (high, long) in itertools.pairwise(points):
        if share <= high:
            return max(1, round(short + (long - short) * (share - low) / (high - low)))
    return max(1, round(quantiles[-1]))


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as file:
        yield from csv.DictReader(file)
