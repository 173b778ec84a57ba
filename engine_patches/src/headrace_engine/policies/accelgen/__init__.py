"""AccelGen: targets of each request kept, by who is next, how long a step is and who is preempted.

Waiting requests are ordered by the time that they can still wait (`order`); those that can no longer meet
their target go behind those that can, and ageing bounds for how long. The step budget is mode SLO unless
said otherwise (`slo_budget`), and one long prompt at a time takes what the others leave of it (`limiter`)
[AccelGen, section 4].
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace_engine.policies import ageing
from headrace_engine.policies.accelgen.order import UrgencyOrder
from headrace_engine.policies.accelgen.running_limits import RunningLimiter
from headrace_engine.policies.accelgen.step_estimate import StepEstimate
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.engine_view import EngineLimits
from headrace_engine.policies.parameters import choice, doc, flag
from headrace_engine.policies.step_budget import StepBudget

STEP_BUDGET = "SLO"
GAUGES = {
    "in_time": "waiting requests that can still meet their targets, or have none",
    "hopeless": "waiting requests that can no longer meet their targets",
    "limit_ms": "how long a step may take for the targets of running requests; 0: as long as it likes",
    "preempted": "running requests that lost their KV to an urgent one, since the policy was set",
}
IGNORED = ("selection", "ordering", "exclusive", "preemption", "skipping")


@dataclass(frozen=True, slots=True)
class Params:
    """The paper's one number, and our bound on waiting."""

    gamma: int = field(
        default=750,
        metadata=doc(
            "Requests that must start within so much time of now count as equally urgent, and the shortest"
            " prompt of them starts first; while none must, those within so much of the one that must start"
            " first. Raise it where short prompts shall go ahead of more urgent long ones more often; lower"
            " it where long prompts with a tight target come too late.",
            unit="milliseconds",
            minimum=0,
            maximum=3_600_000,
        ),
    )
    patience: int = ageing.patience(300)


@dataclass(frozen=True, slots=True)
class Methods:
    """The paper's methods one by one; simulations alone choose others than these defaults."""

    selection: str = field(
        default="Shortest",
        metadata=choice(
            "Who is next among the equally urgent: the shortest prompt; the one nearest to what is free of"
            " step and KV cache, which is the longest that fits (the paper's Algorithm 2); or the most"
            " urgent.",
            "Shortest",
            "NearestFit",
            "MostUrgent",
        ),
    )
    ordering: bool = field(
        default=True, metadata=flag("Order by urgency; false is order of arrival (the paper's /Order).")
    )
    exclusive: bool = field(
        default=True,
        metadata=flag(
            "Prefill one long prompt at a time, while short ones go ahead of it (the paper's ERA)."
        ),
    )
    preemption: str = field(
        default="UnlessLate",
        metadata=choice(
            "Whether an urgent request takes the KV cache of a running one that can be in time all the same:"
            " always (the paper's Algorithm 1), unless requests wait that are late already, or never. But for"
            " Never, a full cache also preempts who can wait longest of those looked at in the step.",
            "UnlessLate",
            "Always",
            "Never",
        ),
    )
    skipping: bool = field(
        default=False,
        metadata=flag(
            "Skip a step of running requests that are far ahead of their targets, while more prompt tokens"
            " wait than the step has time for (the paper's). No load that we tried was served better for it,"
            " and where vLLM uses its V1 model runner each skip costs sending all of a request's tokens to"
            " the workers again."
        ),
    )


def compose(
    params: Params, limits: EngineLimits, step_budget: StepBudget, methods: Methods = Methods()
) -> Policy:
    """Compose order, admission, step budget and limiter, which share what they know of running requests."""
    steps = StepEstimate(step_budget, skipping=methods.skipping)
    order = UrgencyOrder(
        params.gamma / 1000, methods.selection, params.patience, limits, steps, ordering=methods.ordering
    )
    limiter = RunningLimiter(order, steps, exclusive=methods.exclusive, preemption=methods.preemption)

    def gauges() -> tuple[float, ...]:
        waiting, hopeless = order.counts()
        limit = steps.deadlines.limit or 0.0
        return waiting - hopeless, hopeless, limit * 1000, limiter.preempted

    return Policy(order, order.admit, steps, limiter, gauges=gauges)
