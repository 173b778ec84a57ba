"""What clients saw of a replay, in numbers: latencies of each request, their percentiles, targets met.

TTFT is from sending to the first token, ITL between two tokens of one request, TPOT the mean of these, E2E
from sending to the last token; all in seconds. A request that failed has met no target: it counts in the
attainment, not in the latencies.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """One request as its client saw it; `error` is empty when all its tokens came, else one sentence."""

    service: str
    sent: float  # seconds from the replay's start, by its plan
    ttft: float = math.nan
    tpot: float = math.nan
    max_itl: float = math.nan
    e2e: float = math.nan
    output_tokens: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Targets:
    """A service's targets in seconds; None means no target. TPOT is a request's mean."""

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, median and 95th percentile in seconds; NaN without samples."""

    mean: float
    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class Summary:
    """One service under one policy. `attainment` is the share of requests that met every target."""

    requests: int
    errors: int
    ttft: Spread
    tpot: Spread
    e2e: Spread
    attainment: float


def sample(service: str, sent: float, token_times: Sequence[float]) -> Sample:
    """Make the sample of a completed request from the times of its tokens, in order, and `sent`."""
    gaps = [later - earlier for earlier, later in itertools.pairwise(token_times)]
    return Sample(
        service=service,
        sent=sent,
        ttft=token_times[0] - sent,
        tpot=sum(gaps) / len(gaps) if gaps else 0.0,
        max_itl=max(gaps, default=0.0),
        e2e=token_times[-1] - sent,
        output_tokens=len(token_times),
    )


def met(request: Sample, targets: Targets) -> bool:
    """Tell whether the request completed and met every target."""
    if request.error:
        return False
    pairs = ((request.ttft, targets.ttft), (request.tpot, targets.tpot), (request.e2e, targets.e2e))
    return all(target is None or value <= target for value, target in pairs)


def summarise(requests: Iterable[Sample], targets: Targets) -> Summary:
    """Summarise percentiles over completed requests, attainment over all."""
    every = list(requests)
    completed = [request for request in every if not request.error]
    return Summary(
        requests=len(every),
        errors=len(every) - len(completed),
        ttft=spread([request.ttft for request in completed]),
        tpot=spread([request.tpot for request in completed]),
        e2e=spread([request.e2e for request in completed]),
        attainment=sum(met(request, targets) for request in every) / len(every) if every else math.nan,
    )


def spread(values: Iterable[float]) -> Spread:
    """Return the mean, the median and the 95th percentile."""
    ordered = sorted(values)
    mean = sum(ordered) / len(ordered) if ordered else math.nan
    return Spread(mean, percentile(ordered, 50), percentile(ordered, 95))


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile of sorted values: the least that `percent` % do not exceed."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]
