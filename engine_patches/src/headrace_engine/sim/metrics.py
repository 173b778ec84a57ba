"""Figures of a simulated run: latencies, throughput, waits, attainment of targets; goodput of a load sweep.

All are over the requests in the middle of the run: the first and last `EDGE` of them, in order of arrival,
are left out, since they meet an empty engine or leave one. Seconds, tokens, requests per second.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.workloads.arrival import Arrival

EDGE = 0.1  # share of the requests left out at either end
PERCENTILES = (50, 95, 99)  # of latencies, wherever Headrace shows them
SPREAD = ("mean", *(f"p{percent}" for percent in PERCENTILES))
LATE = 0.75  # from this share of the arrivals on the queue is looked at for whether it ever empties
SUSTAINED = (0.1, 0.7)  # of the finishes of an overloaded run; later ones see the engine run empty

Unloaded = Callable[[Arrival], float]
"""Seconds that a request takes alone on an idle engine."""


@dataclass(frozen=True, slots=True)
class Targets:
    """A request meets all that are set, in seconds; a lost one meets none.

    `tpot` holds for the mean gap between its tokens, `e2e_scale` times the unloaded time is a target for E2E.
    """

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None
    e2e_scale: float | None = None


def met_targets(outcome: Outcome, targets: Targets, unloaded: Unloaded | None = None) -> bool:
    """Tell whether the request met its targets; `e2e_scale` needs `unloaded`, ValueError without it."""
    if targets.e2e_scale is not None and unloaded is None:
        raise ValueError("Targets.e2e_scale needs the unloaded time of a request")
    ttft, tpot, e2e = outcome.ttft, outcome.tpot, outcome.e2e
    if ttft is None or tpot is None or e2e is None:
        return False
    return not (
        (targets.ttft is not None and ttft > targets.ttft)
        or (targets.tpot is not None and tpot > targets.tpot)
        or (targets.e2e is not None and e2e > targets.e2e)
        or (
            targets.e2e_scale is not None
            and unloaded is not None
            and e2e > targets.e2e_scale * unloaded(outcome.arrival)
        )
    )


def tokens_in_time(outcome: Outcome) -> int:
    """Count the tokens that came in time by the targets that the request's client asked for; 0 if it is lost.

    The first by TTFT, each other by the gap before it, which TPOT is the target of; all or none by E2E.
    """
    wanted, ttft, e2e = outcome.arrival.targets, outcome.ttft, outcome.e2e
    if ttft is None or e2e is None or (wanted.e2e is not None and e2e > wanted.e2e):
        return 0
    late = outcome.late_tokens + (wanted.ttft is not None and ttft > wanted.ttft)
    return outcome.arrival.output_tokens - late


def steady_outcomes(outcomes: Iterable[Outcome], edge: float = EDGE) -> list[Outcome]:
    """Return the outcomes in the middle of the run, in order of arrival."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.arrival.at)
    cut = int(len(ordered) * edge)
    return ordered[cut : len(ordered) - cut]


def attainment(outcomes: Sequence[Outcome], targets: Targets, unloaded: Unloaded | None = None) -> float:
    """Return the share of these requests that met their targets; 0 of none."""
    return (
        sum(met_targets(outcome, targets, unloaded) for outcome in outcomes) / len(outcomes)
        if outcomes
        else 0.0
    )


def summarise_run(
    outcomes: Iterable[Outcome],
    targets: Mapping[str, Targets] | None = None,
    unloaded: Unloaded | None = None,
) -> dict[str, float]:
    """Summarise a run in figures by name.

    `{ttft,tpot,gap,e2e,normalized,wait}_{mean,p50,p95,p99,max}`: `tpot` is a request's mean gap between
    tokens, `gap` its longest, `normalized` its E2E per output token, `wait` its time until first scheduled.
    `requests`, `lost`, `preemptions`, `cached_share` (of prompt tokens), `requests_per_second` and
    `tokens_per_second` of output over the whole run, `left_waiting` (see there), `met_{name}` and
    `met_{name}_per_second` of each target. Latencies are over requests that came so far; where none did the
    figure is absent.
    """
    everything = list(outcomes)
    middle = steady_outcomes(everything)
    answered = [each for each in middle if not each.lost]
    several = [each for each in answered if each.arrival.output_tokens > 1]
    figures: dict[str, float] = {
        "requests": len(middle),
        "lost": sum(each.lost for each in middle),
        "preemptions": sum(each.preemptions for each in everything),
        "cached_share": _share(
            sum(each.cached_tokens for each in middle), sum(each.arrival.prompt_tokens for each in middle)
        ),
        **_throughput(everything),
        "left_waiting": left_waiting(everything),
    }
    for name, values in (
        ("ttft", [each.ttft for each in middle]),
        ("tpot", [each.tpot for each in several]),
        ("gap", [each.longest_gap for each in several]),
        ("e2e", [each.e2e for each in answered]),
        ("normalized", [each.normalized_latency for each in answered]),
        ("wait", [each.wait for each in middle]),
    ):
        figures |= _distribution(name, [value for value in values if value is not None])
    span = middle[-1].arrival.at - middle[0].arrival.at if middle else 0.0
    for name, wanted in (targets or {}).items():
        share = attainment(middle, wanted, unloaded)
        figures[f"met_{name}"] = share
        if span > 0:
            figures[f"met_{name}_per_second"] = share * len(middle) / span
    return figures


def left_waiting(outcomes: Iterable[Outcome]) -> float:
    """Return the fewest requests that waited when another came late in the run, as a share of all; 0 of none.

    Late is the last quarter of the arrivals. Near 0: the queue was empty then, so whatever had piled up was
    served, and the run would go on alike. More: the queue only grew, and so would latencies in a longer run.
    """
    ordered = sorted(outcomes, key=lambda outcome: outcome.arrival.at)
    starts = np.sort([np.inf if each.started_at is None else each.started_at for each in ordered])
    late = np.arange(int(LATE * len(ordered)), len(ordered))
    started = np.searchsorted(starts, [ordered[place].arrival.at for place in late], side="right")
    return float(np.min(late - started)) / len(ordered) if len(late) else 0.0


def sustained_rate(outcomes: Iterable[Outcome]) -> float:
    """Return the requests finished per second under overload; ValueError if fewer than ten finished."""
    finishes = sorted(each.finished_at for each in outcomes if each.finished_at is not None)
    first, last = (int(share * len(finishes)) for share in SUSTAINED)
    if len(finishes) < 10:
        raise ValueError(f"a sustained rate needs at least 10 finished requests, not {len(finishes)}")
    return (last - first) / (finishes[last] - finishes[first])


class Goodput(NamedTuple):
    """A load, and whether the sweep found it (`=`) or only says that it is below or above."""

    load: float
    bound: Literal["=", "<", ">"] = "="


def goodput(loads: Sequence[float], attainments: Sequence[float], level: float = 0.9) -> Goodput:
    """Return the load up to which attainment stays at `level` or above, interpolated between the points.

    `<` the lowest load if attainment is short there already, `>` the highest if it never falls short.
    """
    points = sorted(zip(loads, attainments, strict=True))
    if not points:
        raise ValueError("goodput needs at least one point of a sweep")
    if points[0][1] < level:
        return Goodput(points[0][0], "<")
    for (load, share), (next_load, next_share) in itertools.pairwise(points):
        if next_share < level:
            return Goodput(load + (next_load - load) * (share - level) / (share - next_share))
    return Goodput(points[-1][0], ">")


def _throughput(outcomes: Sequence[Outcome]) -> dict[str, float]:
    finished = [(each.finished_at, each.arrival) for each in outcomes if each.finished_at is not None]
    if not finished:
        return {"requests_per_second": 0.0, "tokens_per_second": 0.0}
    seconds = max(at for at, _ in finished) - min(each.arrival.at for each in outcomes)
    return {
        "requests_per_second": _share(len(finished), seconds),
        "tokens_per_second": _share(sum(arrival.output_tokens for _, arrival in finished), seconds),
    }


def _distribution(name: str, values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    numbers = np.asarray(values)
    values_at = np.percentile(numbers, PERCENTILES)
    return {
        f"{name}_mean": float(numbers.mean()),
        **{f"{name}_p{q}": float(value) for q, value in zip(PERCENTILES, values_at, strict=True)},
        f"{name}_max": float(numbers.max()),
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
