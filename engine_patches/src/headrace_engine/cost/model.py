"""What a cost model is, and what can be done with any of them. All times are seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

STEP_TOKENS = 2048  # vLLM's own --max-num-batched-tokens on most GPUs when a server is started
DECODE_STRIDE = 256  # tokens of context over which a decode's cost is taken as straight


class Batch(NamedTuple):
    """What one model step computes. A decode's context is all that precedes its token.

    A tuple, since thousands are made to find out one budget.
    """

    prefill_tokens: int = 0  # P
    prefill_work: float = 0.0  # W = sum over prefill chunks of q * (context + q/2), q the chunk's tokens
    decodes: int = 0  # D
    decode_context: int = 0  # S = sum of the decodes' contexts in tokens
    prefills: int = 0  # prefill chunks; 0 with P > 0 means unknown


@dataclass(frozen=True, slots=True)
class Profile:
    """Whose time it is, and where that is known from."""

    model: str
    gpu: str
    tensor_parallel: int
    engine: str  # name and version
    source: str  # one line
    max_context: int | None = None  # tokens of the longest sequence that they were made for


class CostModel(Protocol):
    """Answers how long a step takes; pure."""

    @property
    def profile(self) -> Profile:
        """The model and GPU that these times are of."""

    def step_seconds(self, batch: Batch) -> float:
        """Return the seconds of one step that computes `batch`; an empty one costs something, too."""

    def attention_seconds(self, batch: Batch) -> float:
        """Return the share of `step_seconds` that grows with W and S."""


def chunk_work(chunk: int, context: int) -> float:
    """Return W of one prefill chunk of `chunk` tokens that follows `context` computed ones."""
    return chunk * (context + chunk / 2)


@dataclass(frozen=True, slots=True)
class Adjusted:
    """A cost model with two doubts added; see `vary_cost`."""

    cost: CostModel
    profile: Profile
    mixed_attention_factor: float
    overhead_seconds: float

    def step_seconds(self, batch: Batch) -> float:
        """Return how many seconds one step takes."""
        seconds = self.cost.step_seconds(batch) + self.overhead_seconds
        if batch.prefill_tokens and batch.decodes:
            seconds += (self.mixed_attention_factor - 1) * self.cost.attention_seconds(batch)
        return seconds

    def attention_seconds(self, batch: Batch) -> float:
        """Return the share of the seconds that grows with W and S."""
        mixed = batch.prefill_tokens and batch.decodes
        return self.cost.attention_seconds(batch) * (self.mixed_attention_factor if mixed else 1.0)


def vary_cost(
    cost: CostModel, mixed_attention_factor: float = 1.0, overhead_seconds: float = 0.0
) -> CostModel:
    """Make attention dearer in steps that mix prefill with decode, and each step longer.

    Measured attention of mixed steps is 1.36 to 2.03 times the sum of its parts (medians of LLMServingSim's
    tables), which fits made from tables without mixed rows do not know. Host time is in none of them.
    """
    if mixed_attention_factor < 1 or overhead_seconds < 0:
        raise ValueError("mixed_attention_factor must be 1 or more, overhead_seconds 0 or more")
    if mixed_attention_factor == 1 and overhead_seconds == 0:
        return cost
    doubt = f"; mixed attention x{mixed_attention_factor:g}, +{overhead_seconds * 1000:g} ms per step"
    profile = replace(cost.profile, source=cost.profile.source + doubt)
    return Adjusted(cost, profile, mixed_attention_factor, overhead_seconds)


@dataclass(frozen=True, slots=True)
class Scaled:
    """A cost model whose every step takes `factor` times as long."""

    cost: CostModel
    profile: Profile
    factor: float

    def step_seconds(self, batch: Batch) -> float:
        """Return how many seconds one step takes."""
        return self.factor * self.cost.step_seconds(batch)

    def attention_seconds(self, batch: Batch) -> float:
        """Return the share of the seconds that grows with W and S."""
        return self.factor * self.cost.attention_seconds(batch)


def scale_cost(cost: CostModel, factor: float) -> CostModel:
    """Make every step take `factor` times as long: what is not known of a GPU's speed."""
    if factor <= 0:
        raise ValueError(f"a factor of {factor} is not above 0")
    if factor == 1:
        return cost
    return Scaled(cost, replace(cost.profile, source=f"{cost.profile.source}; x{factor:g}"), factor)


def unloaded_seconds(
    cost: CostModel,
    prompt_tokens: int,
    output_tokens: int,
    step_tokens: int = STEP_TOKENS,
    tokens_per_step: float = 1.0,
) -> float:
    """Return how long a request takes alone on the engine, prefilled `step_tokens` at a time."""
    return unloaded_times(cost, prompt_tokens, output_tokens, step_tokens, tokens_per_step)[1]


def unloaded_times(
    cost: CostModel, prompt_tokens: int, output_tokens: int, step_tokens: int, tokens_per_step: float
) -> tuple[float, float]:
    """Return the seconds until the first and the last token of a request that is alone on the engine.

    The last prefill chunk yields the first token. A decode yields `tokens_per_step`, more than 1 if it comes
    with drafts that are accepted. Decodes are summed by trapezoids over their context, which
    is exact where the cost is straight in it.
    """
    prefill = prefill_seconds(cost, prompt_tokens, step_tokens)
    if output_tokens < 2:
        return prefill, prefill
    return prefill, prefill + decode_seconds(cost, prompt_tokens, output_tokens) / tokens_per_step


def prefill_seconds(cost: CostModel, prompt_tokens: int, step_tokens: int) -> float:
    """Return how long a prompt and its first token take alone, prefilled `step_tokens` at a time."""
    seconds = 0.0
    for context in range(0, prompt_tokens, step_tokens):
        chunk = min(step_tokens, prompt_tokens - context)
        seconds += cost.step_seconds(Batch(chunk, chunk_work(chunk, context), prefills=1))
    return seconds


def decode_seconds(cost: CostModel, prompt_tokens: int, output_tokens: int) -> float:
    """Return how long the tokens after the first of two or more take alone, one a step."""
    last = prompt_tokens + output_tokens - 2  # context of the step that yields the last token
    left = prompt_tokens
    decoding = before = cost.step_seconds(Batch(decodes=1, decode_context=left))
    while left < last:
        right = min(left + DECODE_STRIDE, last)
        after = cost.step_seconds(Batch(decodes=1, decode_context=right))
        # as many steps after `left`, up to and with `right`
        decoding += (right - left) * (before + after) / 2 + (after - before) / 2
        left, before = right, after
    return decoding
