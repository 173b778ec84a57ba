"""What the engine was asked over the last hour, in sums over windows of time: `GET :9400/traffic`.

Who should share GPUs depends on it. Unlike the log of finished requests it tells nothing of single ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace_engine.contracts.traffic import MOST_WINDOWS, WINDOW_SECONDS, Traffic, TrafficWindow
from headrace_engine.control.records import FinishedRequest

_LATEST = 1e12  # unix seconds; a time beyond is none
_NOTHING = TrafficWindow(0, 0, 0, 0, 0.0, 0.0, 0, 0.0)


class TrafficLog:
    """Sums over the requests that finished, by when they arrived."""

    def __init__(self) -> None:
        self._windows: dict[int, TrafficWindow] = {}

    def add(self, requests: Iterable[FinishedRequest]) -> None:
        """Count requests that finished; a time that can be none is passed over."""
        for each in requests:
            arrived = each.time - each.e2e
            if each.e2e >= 0 <= arrived and each.time < _LATEST:
                start = int(arrived) // WINDOW_SECONDS * WINDOW_SECONDS
                self._windows[start] = _with(self._windows.get(start) or replace(_NOTHING, start=start), each)
        if len(self._windows) > 2 * MOST_WINDOWS:
            for start in sorted(self._windows)[:-MOST_WINDOWS]:
                del self._windows[start]

    def last_hour(self, now: float) -> Traffic:
        """Return the windows until `now` (unix seconds), the present one included."""
        present = int(now) // WINDOW_SECONDS * WINDOW_SECONDS
        first = present - (MOST_WINDOWS - 1) * WINDOW_SECONDS
        return Traffic(
            tuple(self._windows[start] for start in sorted(self._windows) if first <= start <= present)
        )


def _with(window: TrafficWindow, request: FinishedRequest) -> TrafficWindow:
    return TrafficWindow(
        start=window.start,
        requests=window.requests + 1,
        prompt_tokens=window.prompt_tokens + request.prompt_tokens,
        output_tokens=window.output_tokens + request.output_tokens,
        prompt_squares=window.prompt_squares + request.prompt_tokens**2,
        output_squares=window.output_squares + request.output_tokens**2,
        met=window.met + (request.met == request.targets),
        e2e_seconds=window.e2e_seconds + request.e2e,
    )
