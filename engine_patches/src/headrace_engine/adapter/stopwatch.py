"""CPU time of a thread, told cheaply enough to take it around every call of a policy."""

from __future__ import annotations

import time

EXACT_SECONDS = 0.001  # between two exact readings


class Stopwatch:
    """CPU seconds of the calling thread, one and the same; never less than they are, and a little more.

    The system takes a microsecond to tell them, and the wall clock a tenth of one. So the wall clock's
    advance is added to the last exact reading for as long as it is less than `EXACT_SECONDS`.
    """

    def __init__(self) -> None:
        self._read_at = -EXACT_SECONDS  # by the wall clock
        self._read = 0.0

    def __call__(self) -> float:
        """Return the seconds of CPU time so far."""
        now = time.perf_counter()
        if now - self._read_at >= EXACT_SECONDS:
            self._read, self._read_at = time.thread_time(), now
        return self._read + (now - self._read_at)
