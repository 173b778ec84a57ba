"""The paper's orders of waiting requests, and the search in one of them for what fits.

`by_three_keys` is that of variants with an order [EconoServe, section 3.4]: nearest range of time to the
deadline, then most KV held, then longest; who can no longer meet its deadline goes behind (our reading).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from math import inf

from headrace_engine.policies.econoserve.task_queue import Rank, Ranking, TaskQueue
from headrace_engine.policies.engine_view import EngineView, RequestView

RANGES = (0.2, 0.5, 2.0)  # seconds to the deadline: section 3.4's example
LOST = len(RANGES) + 1  # range of those that can't meet their deadline any more


def by_three_keys() -> Ranking:
    """Rank prompts as the paper does: deadline range, KV held (who waits holds none), longest first."""

    def ranking(
        request: RequestView,
        view: EngineView,
        now: float,  # noqa: ARG001  that of the view: these are never ranked ahead
        latest: float,
        tokens: int,
    ) -> tuple[float, Rank]:
        place = time_range(request, view, latest)
        rank = (place, -float(tokens))
        e2e = view.targets(request).e2e
        if place == LOST:
            return inf, rank
        if e2e is None or not place:
            return latest, rank
        return min(latest, request.arrival_time + e2e - RANGES[place - 1]), rank

    return ranking


def by_arrival() -> Ranking:
    """Rank requests by the order in which they joined the queue."""
    return lambda request, view, now, latest, tokens: (inf, ())  # noqa: ARG005


def time_range(request: RequestView, view: EngineView, latest: float) -> int:
    """Find the range of the time to the deadline, 0 the nearest; LOST once its `latest` start is past."""
    if view.now > latest:
        return LOST
    e2e = view.targets(request).e2e
    return len(RANGES) if e2e is None else bisect_left(RANGES, request.arrival_time + e2e - view.now)


class SearchedQueue(TaskQueue):
    """A queue by three keys in which what fits is found by bisection."""

    def longest_within(self, tokens: int) -> Iterator[RequestView]:
        """Yield those that need KV for at most `tokens`, in the queue's order."""
        for place in range(LOST + 1):
            first = bisect_left(self._sorted, ((place, -float(tokens)),))
            for rank, _, request in islice(self._sorted, first, None):
                if rank[0] != place:
                    break
                yield request
