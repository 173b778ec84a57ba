"""Follows each request from arrival to end: its predicted output, and the targets that it shall meet.

Predictions are made as requests arrive and learned from as they finish. A predictor that raises, or predicts
what can't be, costs only that prediction: the mean of recent outputs stands in, and the failure is counted.
If it fails many times in a row it is not asked any more until a document asks for another predictor.

Nothing here imports vLLM.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, KeysView
from dataclasses import dataclass
from math import isfinite
from typing import Any

from headrace_engine.adapter.resumption import resumption_with_tokens
from headrace_engine.adapter.step_timer import StepTimer
from headrace_engine.adapter.targets import RequestOverrides, find_impossible, read_overrides, resolve_targets
from headrace_engine.adapter.vllm_types import VllmRequest
from headrace_engine.contracts import PolicyDocument, Prediction, Slo
from headrace_engine.control.records import PredictorCode, Target
from headrace_engine.cost.model import unloaded_seconds, unloaded_times
from headrace_engine.policies.engine_view import NO_TARGETS, EngineLimits, Targets
from headrace_engine.prediction import Features, Predictor, RunningMean

FAILURES_IN_A_ROW = 20  # before a predictor is given up
CALL_SECONDS = 0.05  # of CPU time in one call; a prediction takes about a thousandth of it
PREFIX_TOKENS = 16  # that stand for a prompt's beginning where vLLM hashes no blocks
CODES = {"None": PredictorCode.MEAN, "Quantile": PredictorCode.QUANTILE, "Learned": PredictorCode.LEARNED}

log = logging.getLogger("vllm.headrace")


class PredictionError(Exception):
    """The predictor answered what can't be, or too late."""


@dataclass(slots=True)
class TrackedRequest:
    """One request in the engine. `first_prediction` is of its arrival, `prediction` of now."""

    request: VllmRequest
    features: Features
    overrides: RequestOverrides
    first_prediction: float = 1.0
    prediction: float = 1.0
    ahead: float = 0.0  # what is predicted once the request outgrows `prediction`; 0 if not known yet
    targets: Targets = NO_TARGETS
    first_token: tuple[float, int] | None = None  # when, and how many tokens came then


class RequestTracker:
    """All requests of one engine; vLLM's own are the keys, by identity."""

    def __init__(
        self,
        step_timer: StepTimer,
        limits: EngineLimits,
        build: Callable[[Prediction], Predictor],
        stopwatch: Callable[[], float],
        most_output: Callable[[VllmRequest], int],
    ) -> None:
        self._step_timer = step_timer
        self._limits = limits
        self._build = build
        self._stopwatch = stopwatch
        self.most_output = most_output  # tokens that a request may produce
        self._slo = Slo()
        self._prediction: Prediction | None = None
        self._predictor: Predictor | None = None
        self._mean = RunningMean()
        self._failed_in_a_row = 0
        self._live: dict[VllmRequest, TrackedRequest] = {}
        self._silent: dict[str, TrackedRequest] = {}  # those without output, by their id
        self.started: set[str] = set()  # those of them that a step may have computed for
        self._to_learn: list[tuple[Features, int]] = []  # requests that ended, and their output's tokens
        self.failures = 0  # predictions for which the mean of recent outputs stood in
        self.ignored_overrides = 0
        self.learned = 0  # requests

    @property
    def given_up(self) -> bool:
        """The predictor failed so often that it is not asked any more."""
        return self._failed_in_a_row >= FAILURES_IN_A_ROW

    @property
    def predictor_code(self) -> PredictorCode:
        """Which predictor answers now."""
        if self.given_up:
            return PredictorCode.GIVEN_UP
        if self._prediction is None or self._predictor is None:
            return PredictorCode.MEAN
        return CODES[self._prediction.predictor]

    def install_document(self, document: PolicyDocument) -> None:
        """Put `document` in force; a predictor that it asks for already keeps what it learned."""
        if document.prediction != self._prediction:
            self._catch_up()
            self._prediction = document.prediction
            self._failed_in_a_row = 0
            self.close()
            try:
                self._predictor = self._build(document.prediction)
            except Exception as error:
                self._fail(error)
        if document.slo != self._slo:
            self._slo = document.slo
            for tracked in self._live.values():
                tracked.overrides = _overrides(tracked.request, self._slo)
                tracked.targets = self._resolve(tracked)

    def close(self) -> None:
        """Stop whatever the predictor runs."""
        predictor, self._predictor = self._predictor, None
        if predictor is not None:
            try:
                predictor.close()
            except Exception as error:
                self._fail(error)

    def track_request(self, request: VllmRequest) -> TrackedRequest:
        """Begin to track a request that was handed to the scheduler."""
        overrides = _overrides(request, self._slo)
        self.ignored_overrides += overrides.ignored
        features = _features(request, self.most_output(request), overrides.output_tokens)
        tracked = TrackedRequest(request, features, overrides)
        tracked.first_prediction = tracked.prediction = self._predict(tracked, request.num_output_tokens)
        tracked.targets = self._resolve(tracked)
        self._live[request] = tracked
        resumption = resumption_with_tokens(request)
        if resumption is not None:
            tracked.first_prediction = self._predict(tracked, 0)  # as when it was new
            tracked.first_token = (resumption.first_token, 1)
            return tracked
        self._silent[request.request_id] = tracked
        if request.num_computed_tokens:  # it runs already
            self.started.add(request.request_id)
        return tracked

    def note_started(self, names: Iterable[str]) -> None:
        """Note the requests that a step computes for the first time."""
        self.started.update(names)

    def note_first_tokens(self, names: KeysView[str], now: float) -> None:
        """Note the time of the first tokens of those requests; a step that computed for them has ended.

        It is that of nobody if nobody has `started`.
        """
        for name in self.started & names:
            tracked = self._silent.get(name)
            if tracked is None:
                self.started.discard(name)
            elif tokens := tracked.request.num_output_tokens:
                del self._silent[name]
                self.started.discard(name)
                tracked.first_token = (now, tokens)

    def forget_request(self, request: VllmRequest) -> None:
        """Drop what is known of a request that is about to be freed."""
        self._live.pop(request, None)
        self._silent.pop(request.request_id, None)
        self.started.discard(request.request_id)

    def learn_from_request(self, request: VllmRequest) -> None:
        """Learn from a request that ran to its end, at the latest before the next prediction."""
        tracked, tokens = self.find_request(request), request.num_output_tokens
        if tokens >= 1:
            self.learned += 1
            self._to_learn.append((tracked.features, tokens))

    def _catch_up(self) -> None:
        """Learn what there is to learn: done when somebody asks, it holds up no output."""
        to_learn, self._to_learn = self._to_learn, []
        for features, tokens in to_learn:
            self._mean.learn(features, tokens)
            if self._predictor is not None and not self.given_up:
                try:
                    self._timed(self._predictor.learn, features, tokens)
                except Exception as error:
                    self._fail(error)

    def find_request(self, request: VllmRequest) -> TrackedRequest:
        """Return what is known of a request in the engine; one that is not followed yet is from now on."""
        tracked = self._live.get(request)
        return self.track_request(request) if tracked is None else tracked

    def targets(self, request: VllmRequest) -> Targets:
        """Return the targets that `request` shall meet."""
        return self.find_request(request).targets

    def first_token(self, request: VllmRequest) -> tuple[float, int] | None:
        """Return when its first output came, and how many tokens that was."""
        return self.find_request(request).first_token

    def predicted_output(self, request: VllmRequest) -> float:
        """Return how many output tokens `request` is expected to produce in all."""
        tracked = self._live.get(request) or self.track_request(request)
        expected = tracked.prediction
        output = request.num_output_tokens
        if output < expected:
            return expected
        expected = tracked.ahead if tracked.ahead > output else self._predict(tracked, output)
        tracked.prediction, tracked.ahead = expected, 0.0
        return expected

    def predict_ahead(self, request: VllmRequest) -> float:
        """Return what `predicted_output` will be when `request` has one more token."""
        tracked, output = self._live.get(request), request.num_output_tokens + 1
        if tracked is None:  # it has ended
            return float(output)
        if output < tracked.prediction:
            return tracked.prediction
        if tracked.ahead <= output:
            tracked.ahead = self._predict(tracked, output)
        return tracked.ahead

    def assess_request(self, tracked: TrackedRequest, output_tokens: int) -> tuple[Targets, Target]:
        """Return the targets that a finished request had, and those of them that no engine could have met.

        A target that is a scale of the unloaded time is here that of the output that it really had.
        """
        cost, slo, prompt = self._step_timer.cost, self._slo, tracked.request.num_prompt_tokens
        targets = tracked.targets
        if cost is None:
            return targets, Target(0)
        gain = self._step_timer.tokens_per_step
        if slo.e2e_scale_percent is None and targets == NO_TARGETS:
            return targets, Target(0)
        alone = unloaded_times(cost, prompt, output_tokens, self._limits.max_step_tokens, gain)
        if slo.e2e_scale_percent is not None:
            targets = resolve_targets(slo, tracked.overrides.targets, alone[1])
        return targets, find_impossible(targets, cost, prompt, output_tokens, alone, gain)

    def unloaded_seconds(self, request: VllmRequest, output_tokens: int) -> float | None:
        """Return how long a request takes alone, its whole prompt computed; None while that is not known."""
        cost = self._step_timer.cost
        if cost is None:
            return None
        return unloaded_seconds(
            cost,
            request.num_prompt_tokens,
            output_tokens,
            self._limits.max_step_tokens,
            self._step_timer.tokens_per_step,
        )

    def _resolve(self, tracked: TrackedRequest) -> Targets:
        alone = None
        if self._slo.e2e_scale_percent is not None:
            alone = self.unloaded_seconds(tracked.request, round(tracked.prediction))
        return resolve_targets(self._slo, tracked.overrides.targets, alone)

    def _predict(self, tracked: TrackedRequest, so_far: int) -> float:
        """Make a prediction beyond `so_far` tokens of output, but within what the request may produce."""
        most = self.most_output(tracked.request)
        if most <= so_far + 1:
            return float(most)
        if self._to_learn:
            self._catch_up()
        value = None
        if self._predictor is not None and not self.given_up:
            try:
                value = self._asked(self._predictor, tracked.features, so_far)
                self._failed_in_a_row = 0
            except Exception as error:
                self._fail(error)
        if value is None:
            features = tracked.features
            value = self._mean.repredict(features, so_far) if so_far else self._mean.predict(features)
        return min(max(value, so_far + 1.0), most)

    def _asked(self, predictor: Predictor, features: Features, so_far: int) -> float:
        if so_far:
            value = float(self._timed(predictor.repredict, features, so_far))
        else:
            value = float(self._timed(predictor.predict, features))
        if not isfinite(value) or value < 0 or (so_far and value <= so_far):
            raise PredictionError(f"predicted {value} tokens after {so_far}")
        return value

    def _timed(self, call: Callable[..., Any], *details: Any) -> Any:
        started = self._stopwatch()
        answer = call(*details)
        seconds = self._stopwatch() - started
        if seconds > CALL_SECONDS:
            raise PredictionError(f"took {seconds:.3f} s of CPU time, more than {CALL_SECONDS} s")
        return answer

    def _fail(self, error: Exception) -> None:
        self.failures += 1
        self._failed_in_a_row += 1
        if self._failed_in_a_row == 1:
            log.warning("headrace: the mean of recent outputs stands in, the predictor failed: %r", error)
        if self.given_up:
            log.error("headrace: the predictor failed %d times in a row and is given up", FAILURES_IN_A_ROW)


def name_finish(request: VllmRequest) -> str:
    """Return vLLM's name of the reason why a request ended; empty while it has not."""
    reason = request.get_finished_reason()
    return "" if reason is None else reason.name


def ran_to_its_end(request: VllmRequest) -> bool:
    """Tell whether the output of a finished request is what it was meant to be.

    A `stop` string is found by vLLM's front end, which then aborts the request in the engine. So an abort
    after the first token of a request with such strings counts, though its client may have left.
    """
    reason = name_finish(request)
    if reason == "ABORT":
        sampling = request.sampling_params
        return bool(sampling is not None and sampling.stop and request.num_output_tokens)
    return reason not in ("", "ERROR")


def _overrides(request: VllmRequest, slo: Slo) -> RequestOverrides:
    sampling = request.sampling_params
    return read_overrides(request.request_id, None if sampling is None else sampling.extra_args, slo)


def _features(request: VllmRequest, most_output: int, hint: int | None) -> Features:
    token_ids = request.prompt_token_ids
    if request.block_hashes:
        prefix = int.from_bytes(request.block_hashes[0][:8], "little")
    else:
        prefix = hash(tuple(token_ids[:PREFIX_TOKENS])) if token_ids else 0
    return Features(
        prompt_tokens=request.num_prompt_tokens,
        max_tokens=most_output,
        prefix=prefix,
        hint=hint,
        token_ids=token_ids,
    )
