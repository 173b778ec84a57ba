"""A cost model composed of operators, each a table of its own: what most of the catalogue is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_engine.cost.grid import locate, read_line, read_plane
from headrace_engine.cost.model import Batch, Profile

TILE = 128  # tokens that the smallest tile of a product takes
MOST_LOST = 160  # tokens: half of the largest


def tiled_tokens(batch: Batch) -> float:
    """Return the tokens that a step computes, with those that it computes for nothing.

    Products are measured at sizes that fill the kernels' tiles, of 128 tokens and more. A step with prefill
    leaves its last tile half empty on average, if it needs more than one. Our reading of how measured servers
    differ from such tables; the numbers are calibrated on the same runs as `server_host_time`.
    """
    tokens = batch.prefill_tokens + batch.decodes
    return tokens + min(max(tokens - TILE, 0) / 2, MOST_LOST) if batch.prefill_tokens else tokens


@dataclass(frozen=True, slots=True)
class Axes:
    """The sizes that operators are tabled at, each ascending."""

    tokens: Sequence[int]  # of a step
    sequences: Sequence[int]  # that get a token
    prompts: Sequence[int]  # tokens of one prompt
    decodes: Sequence[int]
    contexts: Sequence[int]  # tokens before each decode's


@dataclass(frozen=True, slots=True)
class Composed:
    """The seconds of a step's operators, over all layers, added up.

    `dense` is what depends on the step's tokens alone: products with the weights, what goes through memory
    number by number, all-reduces. A chunk of a prompt takes its part of the square that the whole prompt so
    far would take, but no less than a prompt of its length or one decode of that context. One kernel does all
    chunks and decodes: what it takes for nothing counts once. Chunks of a step count as equally long, decodes
    as of equal context.
    """

    profile: Profile
    axes: Axes
    dense: Sequence[float]  # by tokens
    head: Sequence[float]  # by sequences
    prompt: Sequence[float]  # attention, by prompts
    decode: Sequence[Sequence[float]]  # attention, by decodes, contexts

    def step_seconds(self, batch: Batch) -> float:
        """Return how many seconds one step takes."""
        sequences = batch.decodes + (max(batch.prefills, 1) if batch.prefill_tokens else 0)
        dense = read_line(self.dense, locate(self.axes.tokens, tiled_tokens(batch)))
        head = read_line(self.head, locate(self.axes.sequences, sequences))
        return dense + head + self.attention_seconds(batch)

    def attention_seconds(self, batch: Batch) -> float:
        """Return the share of the seconds that grows with W and S."""
        seconds = 0.0
        if batch.decodes:
            seconds = self._decodes(batch.decodes, batch.decode_context / batch.decodes)
        if batch.prefill_tokens:
            chunks = max(batch.prefills, 1)
            chunk = batch.prefill_tokens / chunks
            context = max(batch.prefill_work / batch.prefill_tokens - chunk / 2, 0.0)
            least = self.prompt[0]
            seconds += chunks * (self._chunk(chunk, context) - least)
            seconds += max(least - self.decode[0][0], 0.0) if batch.decodes else least
        return seconds

    def _chunk(self, tokens: float, context: float) -> float:
        own = self._prompt(tokens)
        if not context:
            return own
        whole = tokens + context
        square = self._prompt(whole) * (1 - (context / whole) ** 2)
        return max(square, own, self._decodes(1, whole))

    def _prompt(self, tokens: float) -> float:
        return read_line(self.prompt, locate(self.axes.prompts, tokens))

    def _decodes(self, decodes: int, context: float) -> float:
        return read_plane(
            self.decode, locate(self.axes.decodes, decodes), locate(self.axes.contexts, context)
        )
