"""The order of the waiting requests: the starved, then those with least budget left, equals by arrival.

All that have not run yet have the same left, so they are kept by arrival, apart from those that were
preempted. Who waits longest is the first that joined.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain, count
from typing import NamedTuple

from headrace_engine.policies.doubling_budget.budgets import Budgets
from headrace_engine.policies.engine_view import EngineView, RequestView

Entry = tuple[float, float, int, RequestView]
"""(seconds left, arrival, number in order of joining, request); 0 s for those that have not run."""


class Waiting(NamedTuple):
    """A waiting request: the sorted list that it is in, its entry there, and since when it waits."""

    place: list[Entry]
    entry: Entry
    since: float


class BudgetOrder:
    """The waiting requests. `starvation`: times a request's first budget that it waits before it starves."""

    def __init__(self, budgets: Budgets[RequestView], starvation: float) -> None:
        self._budgets = budgets
        self._starvation = starvation
        self._joined = count()
        self._waiting: dict[RequestView, Waiting] = {}  # in order of joining
        self._fresh: list[Entry] = []
        self._preempted: list[Entry] = []

    def add(self, request: RequestView) -> None:
        """Take in `request`, which joined the queue."""
        left = self._budgets.stop(request)
        entry = (left or 0.0, request.arrival_time, next(self._joined), request)
        place = self._fresh if left is None else self._preempted
        insort(place, entry)
        self._waiting[request] = Waiting(place, entry, self._budgets.now)

    def discard(self, request: RequestView) -> None:
        """Take in that `request` left the queue."""
        place, entry, since = self._waiting.pop(request)
        del place[bisect_left(place, entry)]
        self._budgets.start(request, starved=self._is_starved(since, self._budgets.now))

    def first(self, view: EngineView) -> tuple[float, RequestView] | None:
        """Return who goes ahead of all others, and what it has left; None if nobody waits, or it starves.

        Who starves has waited for so long that it can wait for a place that becomes free.
        """
        request = next(self.ranked(view), None)
        if request is None or self._is_starved(self._waiting[request].since, view.now):
            return None
        place, entry, _ = self._waiting[request]
        return (self._budgets.initial if place is self._fresh else entry[0]), request

    def ranked(self, view: EngineView) -> Iterator[RequestView]:
        """Yield the waiting requests."""
        starved = set()
        for request, (_, _, since) in self._waiting.items():
            if not self._is_starved(since, view.now):
                break
            starved.add(request)
            yield request
        behind = bisect_left(self._preempted, (self._budgets.initial,))
        ahead = self._preempted[:behind]
        for *_, request in chain(ahead, self._fresh, self._preempted[behind:]):
            if request not in starved:
                yield request

    def _is_starved(self, since: float, now: float) -> bool:
        return now - since > self._starvation * self._budgets.initial
