"""How long steps take, and the cost model that this teaches; nothing here imports vLLM."""

from __future__ import annotations

from collections import deque

from headrace_engine.adapter.encoder import EncoderTime
from headrace_engine.adapter.step_features import pure_decode_context, step_sample
from headrace_engine.adapter.vllm_types import ModelRunnerOutput, SchedulerOutput
from headrace_engine.control.records import StepSample
from headrace_engine.cost.fit import DecayedMean, StepFit, is_plausible
from headrace_engine.cost.model import Batch, CostModel

GAIN_HALF_LIFE = 50  # steps with drafts
STEPS_IN_FLIGHT = 16  # at most; vLLM plans one or, with pipeline stages, a few steps ahead
TOGETHER = 16  # samples that are learned from at once, at most: amid a step each would take longer


class StepTimer:
    """The steps of one engine.

    `known`: its cost, if that is known without learning, as in a simulation. `always`: learn from the first
    step on; otherwise from when the cost is asked for first.
    """

    def __init__(self, known: CostModel | None = None, *, always: bool = True) -> None:
        self._known = known
        self._fit = StepFit()
        self._telling = always
        self._learning = always and known is None
        self._timed: list[tuple[SchedulerOutput, float, int | None]] = []  # steps still without a sample
        self._fresh: list[StepSample] = []  # still to be learned from
        self._untold: list[StepSample] = []
        # Each step's output, its start, the tokens that encoders yield in it, and its context if it only
        # decodes: that is summed up at once, since the processor's caches still hold it.
        self._in_flight: deque[tuple[SchedulerOutput, float, int, int | None]] = deque(maxlen=STEPS_IN_FLIGHT)
        self._delivered = 0.0  # when the last step's output came
        self._accepted = DecayedMean(GAIN_HALF_LIFE)
        self._encoder = EncoderTime()
        self.tokens_per_step = 1.0  # that a request that generates gets, its accepted drafts included

    @property
    def cost(self) -> CostModel | None:
        """What is known; the same object until it is renewed."""
        if self._known is not None:
            return self._known
        self._learning = True
        self._learn()
        return self._fit.latest

    @property
    def token_at_most(self) -> float | None:
        """Seconds of a prompt token in steps larger than any so far, at most, before the cost is known."""
        self._learn()
        return self._fit.token_at_most

    @property
    def encoder_token(self) -> float:
        """Seconds of a token that encoders yield; 0 until a step with some was timed."""
        return self._encoder.per_token

    def record_plan(self, output: SchedulerOutput, now: float, encoded: int = 0) -> None:
        """Note that a step was planned: its `SchedulerOutput`, and the tokens that encoders yield in it."""
        if (self._learning or self._telling) and output.total_num_scheduled_tokens:
            self._in_flight.append((output, now, encoded, pure_decode_context(output)))

    def record_delivery(self, output: SchedulerOutput, now: float) -> None:
        """Take in that a step's tokens are there.

        It makes a sample, unless nobody can tell how long it took. So it is where an encoder ran besides, on
        pictures: its time is in the step, but in no sample's terms.
        """
        began, self._delivered = self._delivered, now
        if not self._find(output):
            return  # it was never planned, or is empty
        _, started, encoded, context = self._in_flight.popleft()
        seconds = max(now - max(started, began), 0.0)  # steps overlap when vLLM plans ahead
        if output.scheduled_encoder_inputs:
            self._learn_encoder(step_sample(output, seconds), encoded)
            return
        self._timed.append((output, seconds, context))
        if len(self._timed) >= TOGETHER:
            self._learn()

    def take_samples(self) -> list[StepSample]:
        """Return the samples since the last time: to be asked for when it holds up no output."""
        self._make_samples()
        samples, self._untold = self._untold, []
        return samples

    def mute(self) -> None:
        """Keep no samples any more, since nobody takes them."""
        self._telling = False
        self._untold.clear()

    def _make_samples(self) -> None:
        timed, self._timed = self._timed, []
        for output, seconds, context in timed:
            if context is None:
                sample = step_sample(output, seconds)
            else:  # made by the tuple itself, which takes half the time
                values = (0, 0, output.total_num_scheduled_tokens, context, seconds)
                sample = tuple.__new__(StepSample, values)
            if self._learning:
                self._fresh.append(sample)
            if self._telling:
                self._untold.append(sample)
        if len(self._fresh) >= TOGETHER:
            self._learn()

    def _learn(self) -> None:
        if self._timed:
            self._make_samples()
        fresh, self._fresh = self._fresh, []
        for sample in filter(is_plausible, fresh):
            self._fit.add(sample)

    def _learn_encoder(self, sample: StepSample, encoded: int) -> None:
        """Learn from a step whose encoders yielded so many tokens."""
        self._learn()
        cost = self._known or self._fit.latest
        if cost is not None and is_plausible(sample):
            without = Batch(sample.prefill_tokens, sample.prefill_work, sample.decodes, sample.decode_context)
            self._encoder.add(encoded, sample.seconds - cost.step_seconds(without))

    def record_drafts(self, output: SchedulerOutput, result: ModelRunnerOutput) -> None:
        """Take in how many tokens drafts gave in a step: the `ModelRunnerOutput` of `output`."""
        drafted, tokens = output.scheduled_spec_decode_tokens, result.sampled_token_ids
        if not drafted or not tokens:
            return
        given = [len(tokens[result.req_id_to_index[name]]) for name in drafted]
        self._accepted.add(sum(given) / len(given))
        self.tokens_per_step = max(self._accepted.value, 1.0)

    def _find(self, output: SchedulerOutput) -> bool:
        """Tell whether this step is in flight, and drop those before it."""
        in_flight = self._in_flight
        if in_flight and in_flight[0][0] is output:
            return True
        if not any(each[0] is output for each in in_flight):
            return False
        while in_flight[0][0] is not output:
            in_flight.popleft()
        return True
