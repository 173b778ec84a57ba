"""With what priority a service asks for the turn: in fair shares, or by doubling budgets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import exp, inf, log

from headrace_engine.contracts.turn_group import TurnOrder
from headrace_engine.policies.doubling_budget.budgets import Budgets
from headrace_engine.policies.doubling_budget.execution_times import ExecutionTimes

UNKNOWN_SECONDS = 1.0  # mean execution time, and budget, of a service of which too few requests have finished
MEMORY_SECONDS = 10.0  # after which what a service has had of the GPU counts 1 / e
SLICE_SECONDS = 0.02  # for which a share is had at a time: some steps, so that handing over costs little
LEAST_HAD = 1e-9  # so that a logarithm is finite

Counts = Callable[[], tuple[int, int]]
"""How many requests run and how many wait."""


class Order(ABC):
    """The priority of one service; requests are known by name. All times are seconds.

    `counts`: of the service's requests, at any time.
    """

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    @abstractmethod
    def value(self) -> float:
        """Return the priority: finite, and less goes first."""

    @abstractmethod
    def compute(self, seconds: float, now: float) -> None:
        """Take in that the engine computed for so long until `now`, in unix seconds."""

    @abstractmethod
    def start(self, request: str) -> None:
        """Take in that `request` has a place in the engine."""

    @abstractmethod
    def preempt(self, request: str) -> None:
        """Take in that `request` lost its place."""

    @abstractmethod
    def finish(self, request: str, unloaded: float | None, *, whole: bool) -> None:
        """Take in that `request` ended; `whole` if it ran to its end.

        `unloaded`: for how long it would have run alone on the engine; None if that is not known yet.
        """


class FairShare(Order):
    """Give each service time in proportion to its requests over their mean unloaded time (our own).

    While a service waits, so do all its requests, and each loses as much normalised latency as its service's
    time is short. Decoding together takes them hardly longer than one alone. While decoding is bound by
    memory, shares in that proportion settle at the square roots of the rates of arrival: of all fixed shares
    those have the least sum of normalised latencies.

    First goes who has had least: seconds of the GPU over the service's weight, which count less the longer
    they are past. So who was idle has its burst done soon, and who always computes shares by weight. What
    counts less with time is compared by its logarithm plus the time over `MEMORY_SECONDS`, which stays as it
    is while nothing is had: the clocks of engines on one node agree.
    """

    def __init__(self, counts: Counts) -> None:
        super().__init__(counts)
        self._times = ExecutionTimes()
        self._computed = 0.0  # in all
        self._started: dict[str, float] = {}  # when requests did, in seconds that were computed
        self._had = 0.0  # over the weight, as remembered when it last computed
        self._at = 0.0  # unix seconds of that
        self._value = log(LEAST_HAD)  # at the beginning of the slice
        self._left = 0.0  # of the slice

    def value(self) -> float:
        """Return the priority with which the slice began."""
        if self._left <= 0:
            self._left = SLICE_SECONDS
            self._value = log(max(self._had, LEAST_HAD)) + self._at / MEMORY_SECONDS
        return self._value

    def compute(self, seconds: float, now: float) -> None:
        """Take in that the engine computed for so long until `now`, in unix seconds."""
        remembered = exp(min((self._at - now) / MEMORY_SECONDS, 0.0))  # a clock may be set back
        self._had = self._had * remembered + seconds / self._weight()
        self._at = now
        self._computed += seconds
        self._left -= seconds

    def start(self, request: str) -> None:
        """Take in that `request` has a place in the engine."""
        self._started.setdefault(request, self._computed)

    def preempt(self, request: str) -> None:
        """Do nothing: until `request` ends, all that the engine computes counts."""

    def finish(self, request: str, unloaded: float | None, *, whole: bool) -> None:
        """Take in that `request` ended; `whole` if it ran to its end. It never counts more than it took."""
        started = self._started.pop(request, None)
        if whole and started is not None:
            took = self._computed - started
            self._times.record(took if unloaded is None else min(unloaded, took))

    def _weight(self) -> float:
        mean = self._times.mean
        return max(sum(self._counts()), 1) / (mean if mean < inf else UNKNOWN_SECONDS)


class DoublingBudget(Order):
    """Put the service first whose next request has least to do [SeaLLM, section 4.2 and Algorithm 2].

    The least of what its requests have left of their budgets, times the mean execution time of the service.
    That is Smith's rule, which gives the least sum of latencies over mean times where one request executes
    after another: a service of short requests goes before one of long ones, and a request that has outrun its
    budget goes behind. A request executes in the time that its own engine computes, in turns that it has,
    while it holds a place there (our reading).
    """

    def __init__(self, counts: Counts) -> None:
        super().__init__(counts)
        self._budgets: Budgets[str] = Budgets()

    def value(self) -> float:
        """Return what the next request has left, times the mean time."""
        mean, initial = self._budgets.mean, self._budgets.initial
        if initial == inf:
            return UNKNOWN_SECONDS**2
        _, waiting = self._counts()
        left = min(self._budgets.least_left(), initial if waiting else inf)
        return mean * (left if left < inf else initial)

    def compute(self, seconds: float, now: float) -> None:  # noqa: ARG002
        """Take in that the engine computed for so long."""
        self._budgets.advance(self._budgets.now + seconds)

    def start(self, request: str) -> None:
        """Take in that `request` has a place in the engine."""
        self._budgets.start(request, starved=False)

    def preempt(self, request: str) -> None:
        """Take in that `request` lost its place."""
        self._budgets.stop(request)

    def finish(self, request: str, unloaded: float | None, *, whole: bool) -> None:  # noqa: ARG002
        """Take in that `request` ended; `whole` if it ran to its end."""
        self._budgets.end(request, whole=whole)


ORDERS: dict[TurnOrder, type[Order]] = {"FairShare": FairShare, "DoublingBudget": DoublingBudget}
