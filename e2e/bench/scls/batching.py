"""Which requests are served together: batches that take least time in all (Algorithm 1 of the SCLS paper)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from e2e.bench.scls.estimates import MostRequests, ServingTime


def split(lengths: Sequence[int], serving: ServingTime, iterations: int, most: MostRequests) -> list[range]:
    """Split requests, by their input `lengths` in ascending order, into batches of neighbours.

    Their estimated times for so many iterations add up to the least that any such split takes (equation 10).
    A batch has no more requests than `most` allows, and at least one. Of equal splits the one with the
    smaller last batch is taken.
    """
    count = len(lengths)
    least = np.zeros(count + 1)  # seconds of the first i requests
    start = [0] * (count + 1)  # of the last of their batches
    for end in range(1, count + 1):
        length = lengths[end - 1]
        per_request, rest = serving.linear(length, iterations)
        first = max(0, end - max(1, most(length + iterations)))
        sizes = np.arange(1, end - first + 1)
        seconds = least[first:end][::-1] + (per_request * sizes + rest)
        best = int(seconds.argmin())
        least[end], start[end] = seconds[best], end - 1 - best
    batches = []
    end = count
    while end:
        batches.append(range(start[end], end))
        end = start[end]
    return batches[::-1]
