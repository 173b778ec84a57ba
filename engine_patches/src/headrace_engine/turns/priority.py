"""With what priority a service asks for the turn: doubling budgets [SeaLLM, section 4.2 and Algorithm 2].

The least of what its requests have left of their budgets, times the mean execution time of the service. That
is Smith's rule, which gives the least sum of latencies over mean times: a service of short requests goes
before one of long ones, and a request that has outrun its budget goes behind. A request executes in the time
that its own engine computes, in turns that it has, while it holds a place there (our reading).
"""

from __future__ import annotations

from math import inf

from headrace_engine.policies.doubling_budget.budgets import Budgets

UNKNOWN_SECONDS = 1.0  # mean execution time, and budget, of a service of which too few requests have finished


class ServicePriority:
    """The priority of one service; requests are known by name. All times are seconds."""

    def __init__(self) -> None:
        self._budgets: Budgets[str] = Budgets()

    def compute(self, seconds: float) -> None:
        """Take in that the engine computed for so long."""
        self._budgets.advance(self._budgets.now + seconds)

    def start(self, request: str) -> None:
        """Take in that `request` has a place in the engine."""
        self._budgets.start(request, starved=False)

    def preempt(self, request: str) -> None:
        """Take in that `request` lost its place."""
        self._budgets.stop(request)

    def finish(self, request: str, *, whole: bool) -> None:
        """Take in that `request` ended; `whole` if it ran to its end."""
        self._budgets.end(request, whole=whole)

    def value(self, *, waiting: bool) -> float:
        """Return the priority; `waiting` tells whether requests wait that have not run yet."""
        mean, initial = self._budgets.mean, self._budgets.initial
        if initial == inf:
            return UNKNOWN_SECONDS**2
        left = min(self._budgets.least_left(), initial if waiting else inf)
        return mean * (left if left < inf else initial)
