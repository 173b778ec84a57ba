"""Policies that order by lengths, known or predicted; only shortest prompt first could run in production."""

from __future__ import annotations

import functools
import math
import random
import zlib

from headrace_engine.policies.composition import Policy
from headrace_engine.policies.engine_view import EngineLimits, EngineView, RequestView
from headrace_engine.policies.plan import NO_LIMITS, RunningLimits
from headrace_engine.sim.baselines.parts import (
    SortedOrder,
    budget_of,
    exact_blocks,
    fits,
    is_in_prefill,
    reserving,
    true_work_left,
)
from headrace_engine.sim.clock import Compose

PREDICTION_SPREAD = 0.5  # standard deviation of the logarithm of predicted / true output
PREEMPTIBLE_SHARE = (
    0.8  # of its predicted output that a request may have made and still be preempted (TRAIL's c)
)


def no_preempt(step_budget: int = 0) -> Compose:
    """Order by arrival; a request starts once the KV of its whole output can be kept for it."""
    return lambda limits: Policy(  # noqa: ARG005
        admission=reserving(exact_blocks), step_budget=budget_of(step_budget)
    )


def shortest_prompt_first(step_budget: int = 0) -> Compose:
    """Start the request with the fewest prompt tokens first."""
    return lambda limits: Policy(  # noqa: ARG005
        order=SortedOrder(lambda request: request.num_prompt_tokens), step_budget=budget_of(step_budget)
    )


def srpt(step_budget: int = 0) -> Compose:
    """Order by shortest remaining processing time, with true lengths, which no policy can know.

    A waiting request with less left than running ones gets their room: a longer prefill pauses and keeps its
    KV; where a slot or KV is missing, the one with most left loses its own.
    """

    def compose(limits: EngineLimits) -> Policy:  # noqa: ARG001
        order, left = SortedOrder(true_work_left), true_work_left

        def limiter(view: EngineView) -> RunningLimits:
            if not view.running:
                return NO_LIMITS
            running = sorted(view.running, key=left)
            first, last = order.best(), running[-1]
            if first is None or left(last) <= left(first):
                return RunningLimits(running=running)
            if not fits(first, view):
                return RunningLimits(running=running, preempted=(last,))
            longer = [each for each in running if is_in_prefill(each) and left(each) > left(first)]
            return RunningLimits(running=running, skipped=longer)

        return Policy(order=order, step_budget=budget_of(step_budget), limiter=limiter)

    return compose


def trail(step_budget: int = 0) -> Compose:
    """Order by fewest predicted output tokens left, preempting early in a request's life only, as TRAIL does.

    Predicted = true output times a lognormal factor that belongs to the request (our error model; TRAIL's own
    predictor looks into the model). Where the queue's first request has no room, the preemptible request with
    most left makes it, if that is more than the first has.
    """

    @functools.cache
    def factor(name: str) -> float:
        return math.exp(random.Random(zlib.crc32(name.encode())).gauss(0.0, PREDICTION_SPREAD))  # noqa: S311

    def left(request: RequestView) -> float:
        return max(request.max_tokens * factor(request.request_id) - request.num_output_tokens, 1.0)

    def early(request: RequestView) -> bool:
        predicted = request.max_tokens * factor(request.request_id)
        return request.num_output_tokens < PREEMPTIBLE_SHARE * predicted

    def compose(limits: EngineLimits) -> Policy:  # noqa: ARG001
        order = SortedOrder(left)

        def limiter(view: EngineView) -> RunningLimits:
            if not view.running:
                return NO_LIMITS
            running = sorted(view.running, key=lambda each: (early(each), left(each)))
            first, last = order.best(), running[-1]
            if first is None or not early(last) or left(last) <= left(first):
                return RunningLimits(running=running)
            if fits(first, view):
                return RunningLimits(running=running)
            return RunningLimits(running=running, preempted=(last,))

        return Policy(order=order, step_budget=budget_of(step_budget), limiter=limiter)

    return compose
