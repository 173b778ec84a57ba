"""Budgets: for how long each request has run, and for how long it still may.

An engine runs its requests together, so a request executes in all of the engine's time while it holds a place
there (our reading of the paper's execution time, which is the same for requests of one service). A running
request's budget is kept as the time at which it will be used up: nothing has to be counted down from step to
step.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Generic, TypeVar

from headrace_engine.policies.doubling_budget.execution_times import ExecutionTimes

FORGOTTEN_LATE = 16  # running requests that were aborted

Request = TypeVar("Request")


@dataclass(slots=True)
class Budget:
    """One request that has started. Times are seconds."""

    number: int  # in order of starting
    granted: float  # since the last doubling
    left: float  # of them, when it last began to run or stopped
    executed: float = 0.0  # in all, likewise
    since: float = 0.0  # unix seconds when it last began to run
    starved: bool = False  # it runs because it had waited for too long

    def double(self) -> None:
        """Grant twice as much again until something is left."""
        while self.left <= 0:
            self.granted *= 2
            self.left += self.granted
            self.starved = False


class Budgets(Generic[Request]):
    """The budgets of the requests that have started and not ended. All times are seconds."""

    def __init__(self) -> None:
        self._times = ExecutionTimes()
        self._numbers = count()
        self._stopped: dict[Request, Budget] = {}
        self._running: dict[Request, Budget] = {}
        self._ends: list[tuple[float, int, Request]] = []  # of running requests' budgets
        self._known = False  # whether those that run were granted a budget
        self.doubled = 0
        self.now = 0.0  # unix seconds of the step planned last

    @property
    def mean(self) -> float:
        """The mean execution time of the requests that finished last; inf while too few have."""
        return self._times.mean

    @property
    def initial(self) -> float:
        """What a request that starts now is granted; inf while that is not known."""
        return self._times.budget

    def advance(self, now: float) -> None:
        """Go on to the step that is being planned, and double what is used up."""
        self.now = max(now, self.now)  # a clock may be set back
        if not self._known and self.initial < inf:
            self._begin()
        while self._ends and self._ends[0][0] <= self.now:
            request = self._ends[0][2]
            budget = self._stop(request)
            self.doubled += 1
            budget.double()
            self._run(request, budget)

    def start(self, request: Request, *, starved: bool) -> None:
        """Take in that `request` left the queue for a place in the engine."""
        budget = self._stopped.pop(request, None)
        if budget is None:
            budget = Budget(next(self._numbers), self.initial, self.initial)
        budget.starved = starved
        self._run(request, budget)

    def stop(self, request: Request) -> float | None:
        """Take in that `request` is in the queue; return what it has left, None if it has not run yet."""
        if request not in self._running:
            return None
        budget = self._stopped[request] = self._stop(request)
        return budget.left

    def record_finished(self, request: Request, predicted: float) -> None:  # noqa: ARG002
        """Take in that `request` ran to its end."""
        self.end(request, whole=True)

    def end(self, request: Request, *, whole: bool) -> None:
        """Take in that `request` is gone; `whole` if it ran to its end."""
        self._stopped.pop(request, None)
        if request in self._running:
            executed = self._stop(request).executed
            if whole:
                self._times.record(executed)

    def least_left(self) -> float:
        """Return what the running request has left that has least; inf if none runs."""
        return self._ends[0][0] - self.now if self._ends else inf

    def most_left(self) -> Iterator[tuple[float, Request]]:
        """Yield running requests and what they have left, most first; but those that starved not at all.

        Those that were aborted may be among them.
        """
        for end, _, request in reversed(self._ends):
            if not self._running[request].starved:
                yield end - self.now, request

    def expected_left(self, request: Request) -> float:
        """Return for how long `request` is expected to run on, by how long others did."""
        budget = self._running.get(request)
        if budget is not None:
            return self._times.residual(budget.executed + self.now - budget.since)
        stopped = self._stopped.get(request)
        return self._times.residual(stopped.executed if stopped else 0.0)

    def _run(self, request: Request, budget: Budget) -> None:
        budget.since = self.now
        self._running[request] = budget
        insort(self._ends, (self.now + budget.left, budget.number, request))

    def _stop(self, request: Request) -> Budget:
        budget = self._running.pop(request)
        entry = (budget.since + budget.left, budget.number, request)
        del self._ends[bisect_left(self._ends, entry)]
        ran = self.now - budget.since
        budget.executed += ran
        budget.left -= ran
        return budget

    def _begin(self) -> None:
        """Grant the first budget that is known to those that have started without."""
        self._known = True
        for request in list(self._running):
            budget = self._stop(request)
            self._grant(budget)
            self._run(request, budget)
        for budget in self._stopped.values():
            self._grant(budget)

    def _grant(self, budget: Budget) -> None:
        budget.granted = self.initial
        budget.left = budget.granted - budget.executed
        budget.double()

    def forget_aborted(self, *alive: Collection[Request]) -> None:
        """Drop who is not among the `alive`, once they are most: a policy is not told of them."""
        if len(self._running) > 2 * sum(map(len, alive)) + FORGOTTEN_LATE:
            kept = set().union(*alive)
            for request in [each for each in self._running if each not in kept]:
                self._stop(request)
