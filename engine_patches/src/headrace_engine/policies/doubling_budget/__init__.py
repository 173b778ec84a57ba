"""DoublingBudget: who has run for longer than usual makes room for the others.

A request may execute for as long as the service's requests usually do, their mean time plus one standard
deviation. While it is within that budget it is served in order of arrival; whenever it uses a budget up, it
is given one of twice the size, and is as urgent as what is left of that is small [SeaLLM, section 4.2 and
Algorithm 2].

What vLLM makes different from the paper:

- The priority is what is left of the budget times the service's mean time. Equation 7 is lost in our copy of
  the paper; the proof of its optimality (equations 9 to 13) holds for this product alone. All requests of one
  engine are of one service, so within an engine the second factor changes nothing.
- A preempted request loses its KV, which has to be computed anew. So it is preempted only where the other has
  no room else, where that is expected to free much more than it costs (`preemption`), and twice at most.
- Steps have prompts and decodes together, which vLLM computes faster than one after the other;
  `Methods.same_phase` keeps them apart, as the paper does.
- Who has waited for too long goes first, but preempts nobody, and is not preempted within the budget that it
  then has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from headrace_engine.policies.admission import prompt_fits
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.doubling_budget.budget_order import BudgetOrder
from headrace_engine.policies.doubling_budget.budgets import Budgets
from headrace_engine.policies.doubling_budget.preemption import RunningLimiter
from headrace_engine.policies.engine_view import EngineLimits, RequestView
from headrace_engine.policies.parameters import choice, doc, flag
from headrace_engine.policies.step_budget import StepBudget

GAUGES = {
    "budget_ms": "how long a request may run before it makes room for others; 0: too few have finished",
    "doubled": "budgets that were used up and doubled, since the policy was set",
    "preempted": "running requests that lost their KV to one with less left, since the policy was set",
}


@dataclass(frozen=True, slots=True)
class Params:
    """When a waiting request starves; the paper's threshold."""

    starvation_percent: int = field(
        default=200,
        metadata=doc(
            "How long a request may wait at a time before it goes ahead of all others. 100 is as long as a"
            " request may run before it makes room for others. Lower it where the longest waits are too"
            " long; raise it where long requests may wait until the queue is empty. With 0 all"
            " go in the order in which they joined the queue, and nobody makes room.",
            unit="percent",
            minimum=0,
            maximum=1_000_000,
        ),
    )


@dataclass(frozen=True, slots=True)
class Methods:
    """The paper's methods one by one; simulations alone choose others than these defaults."""

    preemption: str = field(
        default="WhereItPays",
        metadata=choice(
            "Whether a running request loses its KV cache to one that has less budget left: where that is"
            " expected to free four times what it costs, always where what is left differs by more than the"
            " cache takes to compute anew (closest to the paper, whose engine loses nothing), or never.",
            "WhereItPays",
            "Always",
            "Never",
        ),
    )
    same_phase: bool = field(
        default=False,
        metadata=flag("Compute prompts and decodes in steps of their own, as the paper's batches do."),
    )


def compose(
    params: Params,
    limits: EngineLimits,  # noqa: ARG001
    step_budget: StepBudget,
    methods: Methods = Methods(),
) -> Policy:
    """Compose the order by budgets, and a limiter that preempts who has most left, within `step_budget`."""
    budgets: Budgets[RequestView] = Budgets()
    order = BudgetOrder(budgets, params.starvation_percent / 100)
    limiter = RunningLimiter(budgets, order, preemption=methods.preemption, same_phase=methods.same_phase)

    def gauges() -> tuple[float, ...]:
        budget = budgets.initial if budgets.initial < inf else 0.0
        return budget * 1000, budgets.doubled, limiter.preempted

    return Policy(order, prompt_fits, step_budget, limiter, budgets.record_finished, gauges)
