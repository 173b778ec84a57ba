"""SLO: the step budget that the tightest TBT target of the running requests leaves time for."""

from __future__ import annotations

from headrace_engine.cost.model import Batch
from headrace_engine.policies.step_budget import StepBudget, engine_budget
from headrace_engine.policies.view import EngineView


def slo_budget() -> StepBudget:
    """A new budget; the engine's own limit while the cost is unknown or nobody has a TBT target."""

    def budget(view: EngineView) -> int:
        targets = (view.targets(request).tbt for request in view.running)
        tightest = min((tbt for tbt in targets if tbt is not None), default=None)
        cost, decodes = view.cost, len(view.running)
        if cost is None or tightest is None:
            return engine_budget(view)
        least = max(decodes, view.limits.min_step_tokens)
        low, high = min(least, view.limits.max_step_tokens), view.limits.max_step_tokens
        while low < high:
            tokens = (low + high + 1) // 2
            batch = Batch(prefill_tokens=tokens - decodes, decodes=decodes)
            if cost.step_seconds(batch) <= tightest:
                low = tokens
            else:
                high = tokens - 1
        return low

    return budget
