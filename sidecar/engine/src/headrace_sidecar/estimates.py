"""Rates and means of a running engine, learned from what it did lately.

`StepFit` learns how long a step takes and tells it as a cost model, like the published ones. SAL's load
formula needs the throughput of a step that is full of prefill: M tokens over its seconds, for the engine's
largest step M [paper 4.2; at a full step: our reading]. Small steps say too little alone: the fixed cost
dominates them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace_engine.control.records import FinishedRequest, StepSample
from headrace_engine.cost.fit import STEP_HALF_LIFE, DecayedMean, StepFit, is_plausible
from headrace_engine.cost.forms import Linear

RECENT_HALF_LIFE = 50  # steps; about a second of decoding
REQUEST_HALF_LIFE = 200  # finished requests


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
        for sample in filter(is_plausible, samples):
            self._fit.add(sample)
            self._step.add(sample.seconds)

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
        return Rates(
            self._fit.prefill_rate(step_tokens), self._step.value, self._prompt.value, self._output.value
        )
