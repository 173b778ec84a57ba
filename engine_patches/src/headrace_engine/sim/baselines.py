"""Policies to compare with, for simulations only: they know output lengths, or reserve what no one needs.

A simulated request's `max_tokens` is the output it will produce. Each entry of `BASELINES` takes
`step_budget` (tokens, 0 for the engine's own) and gives what `simulate` takes.

| name      | who starts next                     | who is preempted when room is short                 |
|-----------|-------------------------------------|-----------------------------------------------------|
| NoPreempt | order of arrival, output reserved   | nobody: KV for all that runs is there               |
| SPF       | fewest prompt tokens                | the latest started, as in vLLM                      |
| SRPT      | least work left, true lengths       | whoever has most work left, also for a shorter one  |
| TRAIL     | fewest predicted output tokens left | most left, while little of its output is made       |
"""

from __future__ import annotations

import functools
import math
import random
import zlib
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

from headrace_engine.policies.composition import Policy
from headrace_engine.policies.plan import NOTHING, Yielding
from headrace_engine.policies.step_budget import StepBudget, engine_budget, fixed_budget
from headrace_engine.policies.view import EngineLimits, EngineView, RequestView
from headrace_engine.sim.clock import Compose

DECODE_WORK = 4  # an output token's engine time in prompt tokens; about that of Llama-3-8B on H100
PREDICTION_SPREAD = 0.5  # standard deviation of the logarithm of predicted / true output
PREEMPTIBLE_SHARE = (
    0.8  # of its predicted output that a request may have made and still be preempted (TRAIL's c)
)

Key = Callable[[RequestView], float]


class SortedOrder:
    """The waiting requests by a key that does not change while they wait, equal keys in order of joining."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._joined = count()
        self._entries: dict[RequestView, tuple[float, int, RequestView]] = {}
        self._sorted: list[tuple[float, int, RequestView]] = []

    def add(self, request: RequestView) -> None:
        """`request` joined the queue."""
        entry = self._entries[request] = (self._key(request), next(self._joined), request)
        insort(self._sorted, entry)

    def discard(self, request: RequestView) -> None:
        """`request` left the queue."""
        entry = self._entries.pop(request)
        del self._sorted[bisect_left(self._sorted, entry)]

    def ranked(self, view: EngineView) -> Iterator[RequestView]:  # noqa: ARG002
        """Lowest key first."""
        return (request for _, _, request in self._sorted)

    def best(self) -> RequestView | None:
        """The next."""
        return self._sorted[0][2] if self._sorted else None


def no_preempt(step_budget: int = 0) -> Compose:
    """Order of arrival; a request starts once the KV of its whole output can be kept for it."""

    def admission(ranked: Iterable[RequestView], view: EngineView) -> Iterator[RequestView]:
        limits = view.limits
        for request in ranked:
            reserved = sum(_final_blocks(each, limits) for each in view.running)
            if view.running and reserved + _final_blocks(request, limits) > limits.total_blocks:
                return
            yield request

    return lambda limits: Policy(admission=admission, step_budget=_budget(step_budget))  # noqa: ARG005


def shortest_prompt_first(step_budget: int = 0) -> Compose:
    """Fewest prompt tokens first."""
    return lambda limits: Policy(  # noqa: ARG005
        order=SortedOrder(lambda request: request.num_prompt_tokens), step_budget=_budget(step_budget)
    )


def srpt(step_budget: int = 0) -> Compose:
    """Shortest remaining processing time with true lengths: no policy without foresight can know them.

    A waiting request with less left than running ones gets their room: a longer prefill pauses and keeps its
    KV; where a slot or KV is missing, the one with most left loses its own.
    """

    def left(request: RequestView) -> float:
        return request.num_tokens - request.num_computed_tokens + DECODE_WORK * _output_left(request)

    def compose(limits: EngineLimits) -> Policy:  # noqa: ARG001
        order = SortedOrder(left)

        def yielder(view: EngineView) -> Yielding:
            if not view.running:
                return NOTHING
            running = sorted(view.running, key=left)
            first, last = order.best(), running[-1]
            if first is None or left(last) <= left(first):
                return Yielding(running=running)
            if not _fits(first, view):
                return Yielding(running=running, preempted=(last,))
            longer = [each for each in running if _in_prefill(each) and left(each) > left(first)]
            return Yielding(running=running, hidden=longer)

        return Policy(order=order, step_budget=_budget(step_budget), yielder=yielder)

    return compose


def trail(step_budget: int = 0) -> Compose:
    """Fewest predicted output tokens left first, preempting early in a request's life only, as TRAIL does.

    Predicted = true output times a lognormal factor that belongs to the request (our error model; TRAIL's own
    predictor looks into the model). Where the queue's first request has no room, the preemptible request with
    most left makes it, if that is more than the first has.
    """

    @functools.cache
    def factor(name: str) -> float:
        return math.exp(random.Random(zlib.crc32(name.encode())).gauss(0.0, PREDICTION_SPREAD))  # noqa: S311

    def left(request: RequestView) -> float:
        return max(request.max_tokens * factor(request.request_id) - _output(request), 1.0)

    def early(request: RequestView) -> bool:
        predicted = request.max_tokens * factor(request.request_id)
        return _output(request) < PREEMPTIBLE_SHARE * predicted

    def compose(limits: EngineLimits) -> Policy:  # noqa: ARG001
        order = SortedOrder(left)

        def yielder(view: EngineView) -> Yielding:
            if not view.running:
                return NOTHING
            running = sorted(view.running, key=lambda each: (early(each), left(each)))
            first, last = order.best(), running[-1]
            if first is None or not early(last) or left(last) <= left(first):
                return Yielding(running=running)
            if _fits(first, view):
                return Yielding(running=running)
            return Yielding(running=running, preempted=(last,))

        return Policy(order=order, step_budget=_budget(step_budget), yielder=yielder)

    return compose


BASELINES: Mapping[str, Callable[..., Compose]] = {
    "NoPreempt": no_preempt,
    "SPF": shortest_prompt_first,
    "SRPT": srpt,
    "TRAIL": trail,
}


def _output(request: RequestView) -> int:
    return request.num_tokens - request.num_prompt_tokens


def _output_left(request: RequestView) -> int:
    return request.max_tokens - _output(request)


def _fits(request: RequestView, view: EngineView) -> bool:
    """Whether a waiting request has a slot, and KV beside what the running ones still need."""
    room = view.free_blocks - view.promised_blocks
    return view.limits.blocks(request.num_tokens) <= room and len(view.running) < view.limits.max_running


def _in_prefill(request: RequestView) -> bool:
    return request.num_tokens - request.num_computed_tokens > 1


def _final_blocks(request: Any, limits: EngineLimits) -> int:
    return limits.blocks(request.num_prompt_tokens + request.max_tokens)


def _budget(tokens: int) -> StepBudget:
    return fixed_budget(tokens) if tokens else engine_budget
