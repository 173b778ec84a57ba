"""What a step of AccelGen is like: its budget, who skips it, and how long prefills take in steps like it."""

from __future__ import annotations

from headrace_engine.policies.pace import Pace
from headrace_engine.policies.slo_budget import SloBudget
from headrace_engine.policies.step_budget import StepBudget
from headrace_engine.policies.view import EngineView, RequestView


class Steps:
    """The step budget given, and the pace of the running requests, which SLO follows anyway."""

    def __init__(self, step_budget: StepBudget, *, skipping: bool) -> None:
        self._budget = step_budget
        self._slo = step_budget if isinstance(step_budget, SloBudget) else None
        if self._slo is not None:
            self._slo.skipping = skipping
        self.pace: Pace = self._slo.pace if self._slo else Pace()
        self.tokens = 0
        self.count = 0  # steps planned
        self._decode_tokens = 1

    def __call__(self, view: EngineView) -> int:
        """Tokens of the step."""
        self.count += 1
        if self._slo is None:
            self.pace.look(view)
        self.tokens = self._budget(view)
        self._decode_tokens = view.limits.decode_tokens
        return self.tokens

    @property
    def hidden(self) -> list[RequestView]:
        """Decodes that skip the step."""
        return self._slo.hidden if self._slo else []

    @property
    def prefill_tokens(self) -> int:
        """Tokens of the step that decodes leave."""
        return max(self.tokens - (self.pace.decodes - len(self.hidden)) * self._decode_tokens, 1)

    @property
    def seconds(self) -> float:
        """A step with prefill, T_max of the paper: as planned, or as steps were on average."""
        return self.pace.planned or self.pace.step

    def prefill_seconds(self, tokens: int) -> float:
        """T_e of a prompt: its chunks times the seconds of a step [section 4.3]."""
        return -(-tokens // self.prefill_tokens) * self.seconds if self.tokens else 0.0
