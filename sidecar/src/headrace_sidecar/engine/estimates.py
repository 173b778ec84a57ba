"""Rates and means of a running engine, learned from what it did lately.

All estimators are pure state with constant memory. They forget by count, not by time: an idle engine
keeps what it knew, a busy one follows a change of load within its half-life.

`StepFit` fits seconds ≈ fixed + per_prefill · prefill tokens + per_decode · decodes by weighted least squares
and answers with the throughput of a step that is full of prefill, M / (fixed + per_prefill · M) for the
engine's largest step M: the token throughput of SAL's load formula [paper 4.2; at a full step: our reading].
Small steps say too little on their own, since the fixed cost dominates them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace_engine.control.records import FinishedRequest, StepSample

STEP_HALF_LIFE = 2000  # samples; some seconds of decoding, still with some prefills among them
RECENT_HALF_LIFE = 50  # steps; about a second of decoding
REQUEST_HALF_LIFE = 200  # finished requests
MIN_PREFILLS = 8  # samples with prefill before a rate is worth telling
LONGEST_STEP = 600.0  # seconds; what took longer was a machine asleep
COLLINEAR = 1e-6  # share of variance that must be independent for two slopes to be told apart


@dataclass(frozen=True, slots=True)
class Rates:
    """What is known of an engine's speed and of its requests; 0 means unknown."""

    prefill_tokens_per_second: float = 0.0
    step_seconds: float = 0.0
    mean_prompt_tokens: float = 0.0
    mean_output_tokens: float = 0.0


class Estimates:
    """All estimators of one engine."""

    def __init__(self) -> None:
        self._fit = StepFit(STEP_HALF_LIFE)
        self._step = DecayedMean(RECENT_HALF_LIFE)
        self._prompt = DecayedMean(REQUEST_HALF_LIFE)
        self._output = DecayedMean(REQUEST_HALF_LIFE)

    def add_steps(self, samples: Iterable[StepSample]) -> None:
        """Learn from model steps, oldest first; what can't be a duration is left out."""
        for sample in filter(_plausible, samples):
            self._fit.add(sample)
            self._step.add(sample.seconds)

    def add_finished(self, requests: Iterable[FinishedRequest]) -> None:
        """Learn from finished requests, oldest first."""
        for request in requests:
            self._prompt.add(request.prompt_tokens)
            self._output.add(request.output_tokens)

    def rates(self, step_tokens: int) -> Rates:
        """What is known now, for an engine whose largest step has `step_tokens`."""
        return Rates(
            self._fit.prefill_rate(step_tokens), self._step.value, self._prompt.value, self._output.value
        )


def _plausible(sample: StepSample) -> bool:
    return 0 < sample.seconds <= LONGEST_STEP


class DecayedMean:
    """Mean of a series in which a value counts half after `half_life` more; 0 while empty."""

    def __init__(self, half_life: float) -> None:
        self._keep = 0.5 ** (1 / half_life)
        self._weight = 0.0
        self.value = 0.0

    def add(self, value: float) -> None:
        """Take one value into account."""
        self._weight = self._weight * self._keep + 1
        self.value += (value - self.value) / self._weight


@dataclass(frozen=True, slots=True)
class StepCost:
    """seconds ≈ fixed + per_prefill · prefill tokens + per_decode · decodes; none is negative."""

    fixed: float
    per_prefill: float
    per_decode: float


class StepFit:
    """Weighted least squares over step samples, kept as decayed means and covariances."""

    def __init__(self, half_life: float = STEP_HALF_LIFE) -> None:
        self._keep = 0.5 ** (1 / half_life)
        self._weight = 0.0
        self._prefill = self._decode = self._seconds = 0.0  # weighted means
        self._pp = self._pd = self._dd = self._py = self._dy = 0.0  # weighted sums of centred products
        self._prefills = 0
        self._tokens = self._token_seconds = 0.0  # decayed sums over steps with prefill

    def add(self, sample: StepSample) -> None:
        """Take one step of more than 0 seconds into account."""
        keep = self._keep
        p, d, y = sample.prefill_tokens, sample.decodes, sample.seconds
        self._weight = self._weight * keep + 1
        dp, dd, dy = p - self._prefill, d - self._decode, y - self._seconds
        self._prefill += dp / self._weight
        self._decode += dd / self._weight
        self._seconds += dy / self._weight
        rp, rd = p - self._prefill, d - self._decode
        self._pp = self._pp * keep + dp * rp
        self._pd = self._pd * keep + dp * rd
        self._dd = self._dd * keep + dd * rd
        self._py = self._py * keep + dy * rp
        self._dy = self._dy * keep + dy * rd
        if p > 0:
            self._prefills += 1
            self._tokens = self._tokens * keep + p
            self._token_seconds = self._token_seconds * keep + y

    def cost(self) -> StepCost | None:
        """The fitted cost; None until prefills of different sizes were seen."""
        if self._prefills < MIN_PREFILLS or self._pp <= 0:
            return None
        per_prefill, per_decode = self._slopes()
        if per_decode < 0:
            per_prefill, per_decode = self._py / self._pp, 0.0
        if per_prefill <= 0:
            return None
        fixed = self._seconds - per_prefill * self._prefill - per_decode * self._decode
        return StepCost(max(fixed, 0.0), per_prefill, per_decode)

    def prefill_rate(self, step_tokens: int) -> float:
        """Prompt tokens per second in steps of `step_tokens`; 0 while unknown.

        Never below what steps with prefill really did: a full step spreads its fixed cost over more tokens.
        """
        if self._prefills < MIN_PREFILLS:
            return 0.0
        seen = self._tokens / self._token_seconds
        cost = self.cost()
        if cost is None or step_tokens <= 0:
            return seen
        return max(seen, step_tokens / (cost.fixed + cost.per_prefill * step_tokens))

    def _slopes(self) -> tuple[float, float]:
        determinant = self._pp * self._dd - self._pd * self._pd
        if determinant <= COLLINEAR * self._pp * self._dd:
            return self._py / self._pp, 0.0
        per_prefill = (self._dd * self._py - self._pd * self._dy) / determinant
        per_decode = (self._pp * self._dy - self._pd * self._py) / determinant
        return per_prefill, per_decode
