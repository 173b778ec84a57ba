"""Step budgets: how many tokens one engine step may process.

A small budget keeps steps short, which bounds the gaps between tokens (ITL) while long prompts are
prefilled; a large one prefills faster. In tokens per step.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace_engine.policies.engine_view import EngineView

StepBudget = Callable[[EngineView], int]


def engine_budget(view: EngineView) -> int:
    """Return the engine's own limit of tokens in a step."""
    return view.limits.max_step_tokens


def fixed_budget(tokens: int) -> StepBudget:
    """Return `tokens`, within the engine's limits and never below what running requests need for a token.

    With less, the last of the running requests would hold their KV for nothing; vLLM refuses the like in its
    own arguments.
    """

    def budget(view: EngineView) -> int:
        limits = view.limits
        least = max(len(view.running) * limits.decode_tokens, limits.min_step_tokens)
        return min(max(tokens, least), limits.max_step_tokens)

    return budget
