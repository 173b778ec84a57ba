"""What running requests give up: those with most left make room for waiting ones with less.

A request is worth its KV for as long as it is expected to run (`Budgets.expected_left`). To exchange two
frees the difference, and costs the whole engine for as long as the lost KV takes to compute anew. Where
outputs are of similar length, who has used up a budget is about to end, and the exchange would cost more than
it frees. Ours; in the paper a preempted request keeps its KV.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from headrace_engine.cost.model import Batch, CostModel, chunk_work
from headrace_engine.policies.admission import prefill_fits
from headrace_engine.policies.doubling_budget.budget_order import BudgetOrder
from headrace_engine.policies.doubling_budget.budgets import Budgets
from headrace_engine.policies.engine_view import EngineView, RequestView
from headrace_engine.policies.plan import NO_LIMITS, RunningLimits

GAIN = 4  # times what it costs that an exchange has to free: what is expected is a guess
LOOKED_AT = 16  # running requests with most left, for one that waits
VICTIMS = 4  # most requests that one step preempts
AGAIN = 2  # preemptions after which a request is left alone


class RunningLimiter:
    """Preempts who has most left, where the first in the queue has less and no room.

    `preemption` and `same_phase`: as in the policy's `Methods`.
    """

    def __init__(
        self,
        budgets: Budgets[RequestView],
        order: BudgetOrder,
        *,
        preemption: str,
        same_phase: bool,
    ) -> None:
        self._budgets = budgets
        self._order = order
        self._preemption = preemption
        self._same_phase = same_phase
        self.preempted = 0  # in sum

    def __call__(self, view: EngineView) -> RunningLimits:
        """Return what running requests give up in this step."""
        self._budgets.forget_aborted(view.running, view.holding)
        self._budgets.advance(view.now)
        if not view.running:
            return NO_LIMITS
        preempted: Sequence[RequestView] = ()
        skipped: Sequence[RequestView] = ()
        if view.waiting and self._preemption != "Never":
            preempted = self._victims(view)
            self.preempted += len(preempted)
        if self._same_phase:
            skipped = self._decodes_beside_prompts(view, preempted)
        if not (preempted or skipped):
            return NO_LIMITS
        return RunningLimits(None, skipped, preempted)

    def _victims(self, view: EngineView) -> list[RequestView]:
        """Choose who makes room for the first in the queue; nobody unless they make enough."""
        found = self._order.first(view)
        if found is None or view.cost is None:
            return []
        left, first = found
        needed = view.limits.blocks(first.num_tokens) - view.shared_blocks(first)
        room = view.free_blocks - view.promised_blocks
        if needed <= room and len(view.running) < view.limits.max_running:
            return []
        victims: list[RequestView] = []
        running = set(view.running)
        worth = self._worth(first, view)
        for its_left, request in islice(self._budgets.most_left(), LOOKED_AT):
            if its_left <= left or len(victims) == VICTIMS:
                break
            if request not in running:
                continue
            lost = _recompute_seconds(request, view.cost)
            if self._preemption == "Always":
                pays = its_left - left > lost
            else:
                gain = self._worth(request, view) - worth
                pays = request.num_preemptions < AGAIN and gain > GAIN * lost
            if pays:
                victims.append(request)
                room += view.limits.blocks(request.num_tokens) - view.shared_blocks(request)
                if needed <= room:
                    return victims
        return []

    def _worth(self, request: RequestView, view: EngineView) -> float:
        """Return the KV that it holds for as long as it is expected to run, in seconds of the whole cache."""
        share = view.limits.blocks(request.num_tokens) / view.limits.total_blocks
        return share * self._budgets.expected_left(request)

    def _decodes_beside_prompts(
        self, view: EngineView, preempted: Sequence[RequestView]
    ) -> Sequence[RequestView]:
        """Return the decodes, if running or waiting prompts take this step; nobody else."""
        first = next(self._order.ranked(view), None)
        has_room = len(view.running) - len(preempted) < view.limits.max_running
        starts = first is not None and has_room and (bool(preempted) or prefill_fits(first, view))
        decodes = [each for each in view.running if each.num_tokens - each.num_computed_tokens <= 1]
        if not starts and len(decodes) == len(view.running):
            return ()
        return [each for each in decodes if each not in preempted]


def _recompute_seconds(request: RequestView, cost: CostModel) -> float:
    """Return how long its KV takes to compute anew."""
    tokens = request.num_tokens
    return cost.step_seconds(Batch(tokens, chunk_work(tokens, 0), prefills=1))
