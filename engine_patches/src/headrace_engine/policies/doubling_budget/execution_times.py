"""Execution times of the requests that finished last: their mean, deviation, and what others may expect."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from itertools import accumulate
from math import inf, sqrt

LEAST_FINISHED = 16  # before that nothing is known
SAMPLES = 256  # finished requests that count


class ExecutionTimes:
    """The last few execution times. All are seconds. A record costs microseconds, a look a binary search."""

    def __init__(self) -> None:
        self._last: deque[float] = deque()
        self._sorted: list[float] = []
        self._sums: list[float] = []  # of `_sorted` from each place to the end; empty: to be made anew
        self.mean = inf  # as the budget: inf before enough requests have finished
        self.budget = inf  # mean plus standard deviation

    def record(self, seconds: float) -> None:
        """Take in the execution time of a request that ran to its end."""
        self._last.append(seconds)
        insort(self._sorted, seconds)
        if len(self._last) > SAMPLES:
            del self._sorted[bisect_left(self._sorted, self._last.popleft())]
        self._sums = []
        count = len(self._sorted)
        if count >= LEAST_FINISHED:
            self.mean = sum(self._sorted) / count
            variance = sum((each - self.mean) ** 2 for each in self._sorted) / count
            self.budget = self.mean + sqrt(variance)

    def residual(self, executed: float) -> float:
        """Return how long a request is expected to run on that has `executed` for so long.

        The mean of what those did that ran for longer; who has run longer than all is expected to run for as
        long again, which is what doubling a budget assumes.
        """
        longer = bisect_right(self._sorted, executed)
        count = len(self._sorted) - longer
        if not count:
            return executed
        if not self._sums:
            self._sums = list(accumulate(reversed(self._sorted)))[::-1]
        return self._sums[longer] / count - executed
