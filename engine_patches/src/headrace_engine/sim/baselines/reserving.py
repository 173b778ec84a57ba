"""Systems that keep a request's whole KV from its start on, after their papers: no one is ever out of KV.

Max allocation keeps as much as the request may come to need: prompt and `EngineView.most_output`, which in
the simulator is the model's whole context. Exact allocation keeps what it will need, truly.

They run on vLLM's engine: prompts are cut at the end of a step's budget, and whoever is preempted prefills
again, where FastServe's own engine would fetch its KV from the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace_engine.policies.composition import Limiter, Policy
from headrace_engine.policies.engine_view import EngineLimits, EngineView, RequestView
from headrace_engine.policies.plan import NO_LIMITS, RunningLimits
from headrace_engine.sim.baselines.feedback_queue import level
from headrace_engine.sim.baselines.parts import (
    Key,
    SortedOrder,
    budget_of,
    exact_blocks,
    has_room,
    is_in_prefill,
    most_blocks,
    reserving,
    true_work_left,
)
from headrace_engine.sim.clock import Compose

BATCH = 8  # requests that Orca and FastServe run at once [EconoServe, section 2.1]
TARGET_FORWARD = 2048  # tokens of a step that MultiRes fills if no step budget is given


def orca(step_budget: int = 0, batch: int = BATCH) -> Compose:
    """Order by arrival, anew at each iteration; max allocation; `batch` requests at most."""
    return lambda limits: Policy(  # noqa: ARG005
        admission=reserving(most_blocks, batch), step_budget=budget_of(step_budget)
    )


def srtf(step_budget: int = 0, batch: int = 0) -> Compose:
    """Order by shortest remaining time at each iteration, with true lengths; max allocation.

    Where there is no room for the shortest of the queue, the longest of those that run makes it, if that has
    more left: one in each step.
    """
    return _exchanging(true_work_left, batch or None, step_budget)


def fast_serve(step_budget: int = 0, batch: int = BATCH) -> Compose:
    """Order by a skip-join queue of five feedback levels; max allocation; lengths are not known.

    A request joins the first level whose quantum covers its prefill, and sinks one level with each quantum of
    work that it has used up; the highest level runs, in order of arrival. Without FastServe's promotion of
    those that waited long.
    """

    def rank(request: RequestView) -> tuple[int, float]:
        return level(request.num_prompt_tokens, request.num_output_tokens), request.arrival_time

    return _exchanging(rank, batch, step_budget)


def multi_res(step_budget: int = 0) -> Compose:
    """Admit whose demand is nearest to the free step tokens and KV, again and again; exact allocation.

    Demands and what is free are shares of the step's tokens and of the KV cache; the distance is Euclidean. A
    prompt that does not fit in the rest of the step may begin in it if no other has begun.
    """

    def compose(limits: EngineLimits) -> Policy:
        forward = min(step_budget or TARGET_FORWARD, limits.max_step_tokens)
        order = SortedOrder(lambda request: limits.blocks(request.num_prompt_tokens + request.max_tokens))

        def admission(_: Iterable[RequestView], view: EngineView) -> Iterator[RequestView]:
            running = view.running
            tokens = forward - sum(max(each.num_tokens - each.num_computed_tokens, 1) for each in running)
            blocks = limits.total_blocks - sum(exact_blocks(each, view) for each in running)
            begun = any(map(is_in_prefill, running))
            taken = set(running)

            def apart(request: RequestView) -> float:
                wanted = min(request.num_tokens, tokens)
                left = blocks - exact_blocks(request, view)
                return ((tokens - wanted) / forward) ** 2 + (left / limits.total_blocks) ** 2

            while tokens > 0:
                whole = (
                    each
                    for each in order.up_to(blocks)
                    if each not in taken and (each.num_tokens <= tokens or not begun)
                )
                chosen = min(whole, key=apart, default=None)
                if chosen is None:
                    return
                tokens -= chosen.num_tokens
                blocks -= exact_blocks(chosen, view)
                taken.add(chosen)
                begun = True
                yield chosen

        return Policy(order, admission, budget_of(forward))

    return compose


def _exchanging(rank: Key, batch: int | None, step_budget: int) -> Compose:
    """Compose lowest rank first, max allocation; who runs is preempted for a lower rank that waits."""

    def compose(limits: EngineLimits) -> Policy:  # noqa: ARG001
        order = SortedOrder(rank)
        return Policy(
            order,
            reserving(most_blocks, batch),
            budget_of(step_budget),
            limiter=_exchange(order, rank, batch),
        )

    return compose


def _exchange(order: SortedOrder, rank: Key, batch: int | None) -> Limiter:
    """Preempt the running one of the highest rank if the queue's first has a lower one and no room."""

    def limiter(view: EngineView) -> RunningLimits:
        first = order.best()
        if first is None or not view.running or has_room(first, view, most_blocks, batch):
            return NO_LIMITS
        last = max(view.running, key=rank)
        return RunningLimits(preempted=(last,)) if rank(last) > rank(first) else NO_LIMITS

    return limiter
