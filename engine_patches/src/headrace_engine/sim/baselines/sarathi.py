"""Sarathi-Serve's stall-free batching: decodes first, then prefills in chunks, up to a token budget."""

from __future__ import annotations

from headrace_engine.policies.composition import Policy
from headrace_engine.policies.engine_view import EngineLimits, EngineView
from headrace_engine.policies.plan import NO_LIMITS, RunningLimits
from headrace_engine.policies.step_budget import fixed_budget
from headrace_engine.sim.baselines.parts import is_in_prefill
from headrace_engine.sim.clock import Compose

CHUNK_BUDGET = 512  # tokens; Sarathi-Serve's for a strict TPOT target


def sarathi(step_budget: int = 0) -> Compose:
    """Give each step to all decodes, then to prompts begun, then to others in order of arrival.

    KV is allocated block by block, as in vLLM, whose own step is this one but for a prompt that was begun
    before a decode.
    """

    def limiter(view: EngineView) -> RunningLimits:
        prompts = [each for each in view.running if is_in_prefill(each)]
        if not prompts or len(prompts) == len(view.running):
            return NO_LIMITS
        decodes = [each for each in view.running if not is_in_prefill(each)]
        return RunningLimits(running=[*decodes, *prompts])

    def compose(limits: EngineLimits) -> Policy:  # noqa: ARG001
        return Policy(step_budget=fixed_budget(step_budget or CHUNK_BUDGET), limiter=limiter)

    return compose
