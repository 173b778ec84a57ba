"""How long a step of a model takes on GPUs of a kind: the sum of its operators.

In each layer: the products of QKV, output projection, up with its gate, and down; attention of chunks and of
decodes, added up; what goes through memory number by number; with several GPUs two all-reduces. Then the
head, for the sequences that get a token. Host time, sampling and what mixing costs attention are not in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from e2e.bench.cost_models.architectures import HEAD_DIM, Architecture
from e2e.bench.cost_models.operators import Heads, Operators
from headrace_engine.cost.composed import tiled_tokens
from headrace_engine.cost.model import Batch, chunk_work

BYTES = 2  # of a number in bf16
BANDWIDTH = {"A100": 2.039e12, "H100": 3.352e12, "H200": 4.8e12}  # bytes per second, by the data sheets
REACHED = 0.8  # share of the bandwidth that kernels reach which go through memory once
LAUNCHES = 10e-6  # seconds per layer that its small kernels take however little they do
GRAPH_TOKENS = 512  # largest step that vLLM runs as a CUDA graph
FEW_TOKENS, MANY_TOKENS = 8, 8192  # products of these are bound by memory, by arithmetic


@dataclass(frozen=True, slots=True)
class Step:
    """What one step computes."""

    chunks: Sequence[tuple[int, int]] = ()  # tokens, and context that was computed before
    contexts: Sequence[int] = ()  # of the decodes

    @property
    def batch(self) -> Batch:
        """Return what a cost model is told of the step."""
        return Batch(
            sum(chunk for chunk, _ in self.chunks),
            sum(chunk_work(chunk, context) for chunk, context in self.chunks),
            len(self.contexts),
            sum(self.contexts),
            len(self.chunks),
        )


@dataclass(frozen=True, slots=True)
class Composition:
    """A model on `gpus` GPUs of a kind."""

    architecture: Architecture
    gpu: str
    gpus: int
    operators: Operators

    def step_seconds(self, step: Step) -> float:
        """Return how long the step takes."""
        tokens = tiled_tokens(step.batch)
        sequences = len(step.chunks) + len(step.contexts)
        attention = self.architecture.layers * self._attention(step)
        return self.products(tokens) + self.other(tokens) + attention + self.head(sequences)

    def products(self, tokens: float) -> float:
        """Return the time of all products with the layers' weights.

        The tables have kernels for 16 to 100 tokens that are up to 12 % slower than those for 8, and measured
        servers show nothing of it. So it is no longer than reading the weights, as for 8, and computing, as
        for many, that overlap: the root of their squares' sum.
        """
        reading, computing = self._products(FEW_TOKENS), self._products(MANY_TOKENS) / MANY_TOKENS * tokens
        tabled = self._products(tokens)
        return tabled if tokens <= FEW_TOKENS else min(tabled, math.hypot(reading, computing))

    def _products(self, tokens: float) -> float:
        model, gpus, matrix = self.architecture, self.gpus, self.operators.matrix
        queries, keys_values = model.heads * HEAD_DIM, 2 * model.kv_heads * HEAD_DIM
        return model.layers * (
            matrix(tokens, (queries + keys_values) // gpus, model.hidden)
            + matrix(tokens, model.hidden, queries // gpus)
            + matrix(tokens, model.ups * model.ffn // gpus, model.hidden)
            + matrix(tokens, model.hidden, model.ffn // gpus)
        )

    def other(self, tokens: float) -> float:
        """Return the time of what goes through memory number by number, and of the all-reduces."""
        layer = self._elementwise(tokens)
        if self.gpus > 1:
            graph = tokens <= GRAPH_TOKENS
            layer += 2 * self.operators.all_reduce(self.gpus, tokens * self.architecture.hidden, graph=graph)
        return self.architecture.layers * layer

    def head(self, sequences: int) -> float:
        """Return the time of the product that gives each sequence its next token."""
        model = self.architecture
        return self.operators.matrix(sequences, model.vocabulary // self.gpus, model.hidden)

    def prompt(self, tokens: int) -> float:
        """Return the time of attention over one prompt, none of it computed before."""
        return self.architecture.layers * self.operators.prompt(self._heads, tokens)

    def decode(self, decodes: int, context: float) -> float:
        """Return the time of attention for so many decodes of that context each."""
        return self.architecture.layers * self.operators.decode(self._heads, decodes, context)

    @property
    def _heads(self) -> Heads:
        return self.architecture.heads // self.gpus, self.architecture.kv_heads // self.gpus

    def _attention(self, step: Step) -> float:
        heads, seconds = self._heads, 0.0
        if step.contexts:
            mean = sum(step.contexts) / len(step.contexts)
            seconds = self.operators.decode(heads, len(step.contexts), mean)
        if step.chunks:
            least = self.operators.prompt(heads, 1)
            seconds += sum(self._chunk(heads, *chunk) - least for chunk in step.chunks)
            seconds += max(least - self.operators.decode(heads, 1, 1), 0.0) if step.contexts else least
        return seconds

    def _chunk(self, heads: Heads, tokens: int, context: int) -> float:
        """Return the time of a chunk: its part of the square that the whole prompt so far would take."""
        whole = tokens + context
        square = self.operators.prompt(heads, whole) * (1 - (context / whole) ** 2)
        return max(square, self.operators.prompt(heads, tokens), self.operators.decode(heads, 1, whole))

    def _elementwise(self, tokens: float) -> float:
        """Return the time of norms, rotary embedding and activation, by the numbers they read and write."""
        model = self.architecture
        heads = (model.heads + 2 * model.kv_heads) * HEAD_DIM
        numbers = tokens * (8 * model.hidden + (2 * heads + (model.ups + 1) * model.ffn) / self.gpus)
        return numbers * BYTES / (REACHED * BANDWIDTH[self.gpu]) + LAUNCHES
