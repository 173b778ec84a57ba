"""A policy is put together from a few parts; each may be left out, and any go together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace_engine.policies.engine_view import EngineView, RequestView
from headrace_engine.policies.plan import NO_LIMITS, Plan, RunningLimits
from headrace_engine.policies.step_budget import StepBudget, engine_budget


class Order(Protocol):
    """Who is next. Hears of every request that joins or leaves the queue, so ranking need not scan it."""

    def add(self, request: RequestView) -> None:
        """Take in that `request` joined the queue: it arrived, or lost its KV."""

    def discard(self, request: RequestView) -> None:
        """Take in that `request` left the queue: it was admitted, or aborted."""

    def ranked(self, view: EngineView) -> Iterator[RequestView]:
        """Yield the waiting requests, best first; lazy, since admission rarely looks past the first few.

        Neither `add` nor `discard` is called before the step is over and the iterator is done with.
        """


Admission = Callable[[Iterable[RequestView], EngineView], Iterator[RequestView]]
"""Who fits: passes on those of the ranked requests that may start in this step."""

Observer = Callable[[RequestView, float], None]
"""Hears of each request that ran to its end, with the output that was predicted when it arrived."""

Gauges = Callable[[], Sequence[float]]
"""A policy's inner state in a few numbers, in the order of its module's `GAUGES`."""

Limiter = Callable[[EngineView], RunningLimits]
"""What the running requests give up in this step: tokens, their turn, or their KV."""

Preparer = Callable[[EngineView], None]
"""Does beforehand what the next step would wait for, while the device computes the step planned last.

`view.now` and `view.holding` are as that step was planned, all else is as it is now. There may be steps
without.
"""


@dataclass(frozen=True, slots=True)
class Policy:
    """The composition; see the package's docstring for what a part left out means."""

    order: Order | None = None
    admission: Admission | None = None
    step_budget: StepBudget = engine_budget
    limiter: Limiter | None = None
    observer: Observer | None = None
    gauges: Gauges | None = None
    preparer: Preparer | None = None

    @property
    def decides_nothing(self) -> bool:
        """Whether all is left to the engine, in every step; a kind of its own may plan otherwise."""
        return (
            type(self) is Policy
            and self.order is None
            and self.admission is None
            and self.limiter is None
            and self.step_budget is engine_budget
        )

    def add(self, request: RequestView) -> None:
        """Take in `request`, which joined the queue."""
        if self.order is not None:
            self.order.add(request)

    def discard(self, request: RequestView) -> None:
        """Forget `request`, which left the queue."""
        if self.order is not None:
            self.order.discard(request)

    def record_finished(self, request: RequestView, predicted: float) -> None:
        """Take in that `request` ran to its end and is about to be freed."""
        if self.observer is not None:
            self.observer(request, predicted)

    def plan(self, view: EngineView) -> Plan:
        """Decide what the next step of the engine does."""
        admitted: Iterable[RequestView] | None = None
        if self.order is not None:
            admitted = self.order.ranked(view)
        if self.admission is not None:
            admitted = self.admission(tuple(view.waiting) if admitted is None else admitted, view)
        return Plan(
            step_tokens=self.step_budget(view),
            admitted=admitted,
            running_limits=NO_LIMITS if self.limiter is None else self.limiter(view),
        )
