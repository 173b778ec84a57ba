"""Rates and means of a running engine, learned from what it did lately.

`StepFit` learns how long a step takes and tells it as a cost model, like the published ones. SAL's load
formula needs the throughput of a step that is full of prefill: M tokens over its seconds, for the engine's
largest step M [paper 4.2; at a full step: our reading]. Small steps say too little alone: the fixed cost
dominates them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from headrace_engine.control.records import FinishedRequest, StepSample
from headrace_engine.cost.fit import STEP_HALF_LIFE, DecayedMean, StepFit, is_plausible
from headrace_engine.cost.forms import Linear

RECENT_HALF_LIFE = 50  # steps; about a second of decoding
REQUEST_HALF_LIFE = 200  # finished requests
SHARE_HALF_LIFE = 5.0  # seconds in which an engine has something to compute
LEAST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Rates:
    """What is known of an engine's speed and of its requests; 0 means unknown.

    Where it shares a GPU by turns, the time in which others compute is part of its steps.
    """

    prefill_tokens_per_second: float = 0.0
    step_seconds: float = 0.0
    mean_prompt_tokens: float = 0.0
    mean_output_tokens: float = 0.0


class GPUShare:
    """What part of a GPU's time an engine has while it has requests; 1 if it waits for no turns."""

    def __init__(self) -> None:
        self._computed = self._waited = 0.0  # seconds, decayed

    def add(self, computed: float, waited: float) -> None:
        """Take into account how long the engine computed, and how long it waited to."""
        keep = 0.5 ** ((computed + waited) / SHARE_HALF_LIFE)
        self._computed = self._computed * keep + computed
        self._waited = self._waited * keep + waited

    @property
    def value(self) -> float:
        """The share, at least `LEAST_SHARE` and at most 1."""
        if not self._computed:
            return 1.0
        return max(self._computed / (self._computed + self._waited), LEAST_SHARE)


class Estimates:
    """All estimators of one engine."""

    def __init__(self) -> None:
        self._fit = StepFit(STEP_HALF_LIFE)
        self._step = DecayedMean(RECENT_HALF_LIFE)
        self._share = GPUShare()
        self._prompt = DecayedMean(REQUEST_HALF_LIFE)
        self._output = DecayedMean(REQUEST_HALF_LIFE)

    def add_steps(self, samples: Iterable[StepSample]) -> None:
        """Learn from model steps, oldest first; what can't be a duration is left out."""
        for sample in filter(is_plausible, samples):
            self._fit.add(sample)
            self._step.add(sample.seconds)
            self._share.add(sample.seconds, 0.0)

    def add_turn_wait(self, seconds: float) -> None:
        """Learn how long the engine has waited for its turn since this was called last."""
        if 0 < seconds < inf:
            self._share.add(0.0, seconds)

    def add_finished(self, requests: Iterable[FinishedRequest]) -> None:
        """Learn from finished requests, oldest first."""
        for request in requests:
            self._prompt.add(request.prompt_tokens)
            self._output.add(request.output_tokens)

    def cost(self) -> Linear | None:
        """Return how long this engine's steps take; None until enough prefills were seen."""
        return self._fit.cost()

    def rates(self, step_tokens: int) -> Rates:
        """Return what is known now, for an engine whose largest step has `step_tokens`."""
        share = self._share.value
        return Rates(
            self._fit.prefill_rate(step_tokens) * share,
            self._step.value / share,
            self._prompt.value,
            self._output.value,
        )
