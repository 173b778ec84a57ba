"""How fast an engine with vLLM's own scheduler prefills, from its counters.

vLLM tells how long the prefill of each request took, but requests prefill together: ten short prompts in one
step count its seconds ten times. So the seconds are those of the engine: between two looks at its metrics,
during which it was never idle, they went into so many steps with so many tokens, and many such spans tell
what a step and a token cost, as the samples of single steps do for an engine with our scheduler.

Until then, and where it is mostly idle, the rate is that of the prompts of all requests over the sum of their
prefill times: right while they come one at a time, and otherwise too low.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace_engine.control.records import StepSample
from headrace_engine.cost.fit import StepFit
from headrace_engine.cost.model import STEP_TOKENS

HALF_LIFE = 300  # spans, of about a second
LONGEST_SPAN = 10.0  # seconds between two looks; in a longer one the engine may have been idle
MOST_GAIN = 10.0  # times what spans with prompts really did; a fit that says more had too little to see


class Totals(NamedTuple):
    """Counters since the engine started, and what it does now."""

    prompt_tokens: float  # computed, not found in the prefix cache
    generated_tokens: float
    steps: float
    prefill_seconds: float  # summed over requests
    running: float


class StockSpeed:
    """Of one life of an engine; counters that fall begin another."""

    def __init__(self) -> None:
        self._fit = StepFit(HALF_LIFE)
        self._before: tuple[float, Totals] | None = None

    def add(self, now: float, totals: Totals) -> None:
        """Take in the engine's counters as of `now`, unix seconds."""
        before, self._before = self._before, (now, totals)
        if before is None:
            return
        seconds, last = now - before[0], before[1]
        steps = totals.steps - last.steps
        prompt = totals.prompt_tokens - last.prompt_tokens
        generated = totals.generated_tokens - last.generated_tokens
        if min(steps, prompt, generated) < 0:
            self._fit = StepFit(HALF_LIFE)
        elif steps >= 1 and last.running and totals.running and 0 < seconds <= LONGEST_SPAN:
            each = (prompt / steps, 0.0, generated / steps, 0.0, seconds / steps)
            self._fit.add(StepSample._make(each))

    def prefill_tokens_per_second(self) -> float:
        """Return the tokens per second in steps that are full of prefill; 0 while nothing is known."""
        if self._before is None:
            return 0.0
        totals = self._before[1]
        alone = totals.prompt_tokens / totals.prefill_seconds if totals.prefill_seconds > 0 else 0.0
        seen = self._fit.prefill_rate(0)
        return max(alone, min(self._fit.prefill_rate(STEP_TOKENS), MOST_GAIN * seen))
