"""The traces of several services on one clock, and the stretch of them that is simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import merge
from pathlib import Path

from headrace_engine.sim.workloads import shape
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.sim.workloads.trace import Trace
from headrace_operator.simulate.pool.pool_service import PoolService
from headrace_operator.simulate.trace import FEWEST, TOO_FEW_ADVICE, find_busiest_start, load_trace
from headrace_operator.simulate.usage_error import UsageError

DATES_FROM = 1e8  # seconds; more are since 1970


@dataclass(frozen=True, slots=True)
class PoolStretch:
    """What each service, in order, is asked in the window that is the busiest of all together.

    Times count from its start.
    """

    arrivals: tuple[tuple[Arrival, ...], ...]
    start: float  # seconds from the first request of all
    seconds: float  # length of the window, or of the traces if they are shorter
    trace_requests: int
    trace_seconds: float
    skipped: tuple[str, ...]  # one line each

    @property
    def requests(self) -> int:
        """Requests of all services."""
        return sum(map(len, self.arrivals))


def load_traces(
    files: Mapping[str, Path], services: Sequence[PoolService], window: float, *, skip: bool
) -> PoolStretch:
    """Read the traces, by service, and take the busiest `window` seconds; UsageError names what is wrong."""
    traces = [_load(files[service.name], service, skip=skip) for service in services]
    _check_overlap([service.name for service in services], traces)
    first = min(trace.start for trace in traces)
    clocked = [
        [replace(arrival, at=arrival.at + trace.start - first) for arrival in trace.arrivals]
        for trace in traces
    ]
    everything = list(merge(*clocked, key=lambda arrival: arrival.at))
    total = everything[-1].at
    start = find_busiest_start(everything, window) if total > window else 0.0
    chosen = tuple(tuple(shape.cut_window(arrivals, start, window)) for arrivals in clocked)
    requests = sum(map(len, chosen))
    if requests < FEWEST:
        raise UsageError(
            f"--trace: the busiest {window:g} s of the traces have {requests} requests; at least {FEWEST} "
            f"are needed ({TOO_FEW_ADVICE})"
        )
    if total == 0:
        raise UsageError(f"--trace: all {requests} requests arrive at the same time; record arrival times")
    return PoolStretch(
        arrivals=chosen,
        start=start,
        seconds=min(window, total),
        trace_requests=len(everything),
        trace_seconds=total,
        skipped=tuple(line for trace in traces for line in trace.skipped),
    )


def _load(path: Path, service: PoolService, *, skip: bool) -> Trace:
    try:
        return load_trace(path, service.engine.settings, skip=skip)
    except UsageError as error:
        raise UsageError(f"{service.name}: {error}") from error


def _check_overlap(names: Sequence[str], traces: Sequence[Trace]) -> None:
    ends = [trace.start + trace.arrivals[-1].at for trace in traces]
    if max(trace.start for trace in traces) > min(ends):
        spans = ", ".join(
            f"{name} from {_time(trace.start)} to {_time(end)}"
            for name, trace, end in zip(names, traces, ends, strict=True)
        )
        raise UsageError(
            f"--trace: at no time was every service asked something: {spans}; record them over the same "
            "hours, with times on one clock"
        )


def _time(seconds: float) -> str:
    if seconds < DATES_FROM:
        return f"{seconds:g} s"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
