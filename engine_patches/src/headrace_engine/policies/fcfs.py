"""FCFS: vLLM's own order.

Requests start in order of arrival, preempted ones first, until one does not fit; running requests are served
in the order in which they started and the latest is preempted first. With the engine's step budget this is
stock vLLM, step for step.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace_engine.policies.composition import Policy
from headrace_engine.policies.engine_view import EngineLimits
from headrace_engine.policies.step_budget import StepBudget


@dataclass(frozen=True, slots=True)
class Params:
    """FCFS has no parameters."""


def compose(params: Params, limits: EngineLimits, step_budget: StepBudget) -> Policy:  # noqa: ARG001
    """Compose the engine's own decisions, within `step_budget`."""
    return Policy(step_budget=step_budget)
