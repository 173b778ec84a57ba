"""What the engine was asked over the last hour, in sums over windows of time: `GET :9400/traffic`.

Who should share GPUs depends on it. Unlike the log of finished requests it tells nothing of single ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace_engine.contracts.traffic import MOST_WINDOWS, SLOTS, WINDOW_SECONDS, Traffic, TrafficWindow
from headrace_engine.control.records import FinishedRequest

_LATEST = 1e12  # unix seconds; a time beyond is none


class TrafficLog:
    """Sums over the requests that finished, by when they arrived."""

    def __init__(self) -> None:
        self._windows: dict[int, _Sums] = {}

    def add(self, requests: Iterable[FinishedRequest]) -> None:
        """Count requests that finished; a time that can be none is passed over."""
        for each in requests:
            arrived = each.time - each.e2e
            if each.e2e >= 0 <= arrived and each.time < _LATEST:
                start = int(arrived) // WINDOW_SECONDS * WINDOW_SECONDS
                self._windows.setdefault(start, _Sums()).add(each, arrived - start)
        if len(self._windows) > 2 * MOST_WINDOWS:
            for start in sorted(self._windows)[:-MOST_WINDOWS]:
                del self._windows[start]

    def last_hour(self, now: float) -> Traffic:
        """Return the windows until `now` (unix seconds), the present one included."""
        present = int(now) // WINDOW_SECONDS * WINDOW_SECONDS
        first = present - (MOST_WINDOWS - 1) * WINDOW_SECONDS
        return Traffic(
            tuple(
                self._windows[start].of_window(start)
                for start in sorted(self._windows)
                if first <= start <= present
            )
        )


class _Sums:
    """Sums over the requests of one window."""

    def __init__(self) -> None:
        self._arrivals = [0] * SLOTS
        self._prompt_tokens = self._output_tokens = self._met = 0
        self._prompt_squares = self._output_squares = self._e2e_seconds = 0.0

    def add(self, request: FinishedRequest, after: float) -> None:
        """Add a request that arrived `after` seconds from the window's start."""
        self._arrivals[int(after * SLOTS / WINDOW_SECONDS)] += 1
        self._prompt_tokens += request.prompt_tokens
        self._output_tokens += request.output_tokens
        self._prompt_squares += request.prompt_tokens**2
        self._output_squares += request.output_tokens**2
        self._met += request.met == request.targets
        self._e2e_seconds += request.e2e

    def of_window(self, start: int) -> TrafficWindow:
        return TrafficWindow(
            start=start,
            arrivals=tuple(self._arrivals),
            prompt_tokens=self._prompt_tokens,
            output_tokens=self._output_tokens,
            prompt_squares=self._prompt_squares,
            output_squares=self._output_squares,
            met=self._met,
            e2e_seconds=round(self._e2e_seconds, 3),
        )
