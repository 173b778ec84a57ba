"""Random steps to compose: a third decodes, a third chunks of prompts, a third both.

Sizes are drawn evenly in their logarithm, so that small and large steps count alike.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import exp, log

from e2e.bench.cost_models.composition import Step

MOST_DECODES = 256
MOST_TOKENS = 8192  # of the chunks of a step: vLLM's budget on an H100
MOST_CHUNKS = 4
FEWEST_TOKENS = 16  # of the chunks of a step, and of a middle context


def random_steps(count: int, longest: int, kv_tokens: int, seed: int) -> Iterator[Step]:
    """Yield steps whose sequences are at most `longest` tokens and whose decodes hold at most `kv_tokens`."""
    chance = random.Random(seed)
    for number in range(count):
        chunks = _chunks(chance, longest) if number % 3 != 0 else ()
        contexts = _contexts(chance, longest, kv_tokens) if number % 3 != 1 else ()
        yield Step(chunks, contexts)


def _chunks(chance: random.Random, longest: int) -> tuple[tuple[int, int], ...]:
    """Draw equal chunks, about half of them behind computed context."""
    count = chance.randint(1, MOST_CHUNKS)
    tokens = min(longest, max(1, _size(chance, FEWEST_TOKENS, MOST_TOKENS) // count))
    return tuple(
        (tokens, chance.randint(0, longest - tokens) if chance.random() < 0.5 else 0) for _ in range(count)
    )


def _contexts(chance: random.Random, longest: int, kv_tokens: int) -> tuple[int, ...]:
    """Draw decodes whose contexts are half to one and a half of a common length."""
    middle = _size(chance, FEWEST_TOKENS, longest)
    decodes = min(_size(chance, 1, MOST_DECODES), max(1, kv_tokens // middle))
    return tuple(min(longest, round(middle * chance.uniform(0.5, 1.5))) for _ in range(decodes))


def _size(chance: random.Random, least: int, most: int) -> int:
    return round(exp(chance.uniform(log(least), log(most))))
