"""The stretch of a trace that is simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads import shape
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.sim.workloads.trace import Trace, TraceError, read_trace
from headrace_operator.simulate.usage_error import UsageError

FEWEST = 50  # requests; quantiles of fewer say nothing
UNLIKELY_TOKENS = 1_000_000  # a second, of one service: it takes dozens of GPUs
TOO_FEW_ADVICE = "--window takes a longer stretch; are times milliseconds where the column's are seconds?"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Requests of the busiest window, with times from its start."""

    arrivals: tuple[Arrival, ...]
    start: float  # seconds into the trace
    seconds: float  # length of the window, or of the trace if that is shorter
    trace_requests: int
    trace_seconds: float
    skipped: tuple[str, ...]  # one line each

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.arrivals) / self.seconds


def load_stretch(path: Path, settings: EngineSettings, window: float, *, skip: bool) -> Stretch:
    """Read the busiest `window` seconds of a trace; UsageError names file, row and column."""
    trace = load_trace(path, settings, skip=skip)
    arrivals = trace.arrivals
    total = arrivals[-1].at
    start = find_busiest_start(arrivals, window) if total > window else 0.0
    chosen = tuple(shape.cut_window(arrivals, start, window))
    if len(chosen) < FEWEST:
        where = f"the busiest {window:g} s of " if total > window else ""
        raise UsageError(
            f"{path}: {where}the trace has {len(chosen)} requests; at least {FEWEST} are needed"
            + (f" ({TOO_FEW_ADVICE})" if total > window else "")
        )
    if chosen[-1].at == 0:
        raise UsageError(f"{path}: all {len(chosen)} requests arrive at the same time; record arrival times")
    seconds = window if total > window else total
    return Stretch(chosen, start, seconds, len(arrivals), total, tuple(trace.skipped))


def load_trace(path: Path, settings: EngineSettings, *, skip: bool) -> Trace:
    """Read a trace of requests that such an engine can serve; UsageError names file, row and column."""
    longest = min(settings.max_model_len, (settings.num_blocks - 1) * settings.block_size)
    try:
        return read_trace(path, longest=longest, skip=skip)
    except TraceError as error:
        limit = f" (what spec.engine allows: {longest})" if f"{longest} tokens" in str(error) else ""
        advice = "; --skip-bad-rows leaves such rows out" if error.skippable else ""
        raise UsageError(f"{error}{limit}{advice}") from error


def doubt_clock(arrivals: Sequence[Arrival], seconds: float) -> list[str]:
    """Say, where more is asked than is likely, that the trace's times may be in another unit."""
    tokens = sum(arrival.tokens for arrival in arrivals) / seconds
    if tokens < UNLIKELY_TOKENS:
        return []
    asked = f"{len(arrivals) / seconds:,.0f} requests and {tokens:,.0f} tokens a second"
    return [
        f"{asked} take dozens of GPUs: are times seconds where the column's are milliseconds (Mooncake's)?"
    ]


def find_busiest_start(arrivals: Sequence[Arrival], window: float) -> float:
    """Find where the window with the most tokens (prompt and output) starts: at the arrival of a request."""
    best, best_start, tokens, last = -1, 0.0, 0, 0
    for first in arrivals:
        while last < len(arrivals) and arrivals[last].at < first.at + window:
            tokens += arrivals[last].tokens
            last += 1
        if tokens > best:
            best, best_start = tokens, first.at
        tokens -= first.tokens
    return best_start
