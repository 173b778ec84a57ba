"""What a step of AccelGen is like: its budget, who skips it, and how long prefills take in steps like it."""

from __future__ import annotations

from headrace_engine.policies.engine_view import EngineView, RequestView
from headrace_engine.policies.slo_budget import SloBudget
from headrace_engine.policies.step_budget import StepBudget
from headrace_engine.policies.token_deadlines import TokenDeadlines


class StepEstimate:
    """The step budget given, and the deadlines of the running requests, which SLO follows anyway."""

    def __init__(self, step_budget: StepBudget, *, skipping: bool) -> None:
        self._budget = step_budget
        self._slo = step_budget if isinstance(step_budget, SloBudget) else None
        if self._slo is not None:
            self._slo.skipping = skipping
        self.deadlines: TokenDeadlines = self._slo.deadlines if self._slo else TokenDeadlines()
        self.tokens = 0
        self.count = 0  # steps planned
        self._decode_tokens = 1

    def __call__(self, view: EngineView) -> int:
        """Return how many tokens the step may compute."""
        self.count += 1
        if self._slo is None:
            self.deadlines.observe_step(view)
        self.tokens = self._budget(view)
        self._decode_tokens = view.limits.decode_tokens
        return self.tokens

    @property
    def skipped(self) -> list[RequestView]:
        """Decodes that get no token in this step."""
        return self._slo.skipped if self._slo else []

    @property
    def prefill_tokens(self) -> int:
        """Tokens of the step that decodes leave."""
        return max(self.tokens - (self.deadlines.decodes - len(self.skipped)) * self._decode_tokens, 1)

    @property
    def seconds(self) -> float:
        """A step with prefill, T_max of the paper: as planned, or as steps were on average."""
        return self.deadlines.planned or self.deadlines.step

    def prefill_seconds(self, tokens: int) -> float:
        """Return T_e of a prompt: its chunks times the seconds of a step [section 4.3]."""
        return -(-tokens // self.prefill_tokens) * self.seconds if self.tokens else 0.0
