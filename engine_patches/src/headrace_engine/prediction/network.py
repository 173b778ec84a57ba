"""The network behind `Learned`: from a prompt's tokens, and what else is free, to shares of output lengths.

Hashed tokens and hashed categories are embedded and averaged, joined with a few numbers, and go through one
hidden layer to a softmax over steps of length. Shares, unlike one number, answer any quantile, and tell what
is left of a request under way. A third of a million weights: 1.3 MiB, 5 with gradients and Adam's state.
"""

from __future__ import annotations

import copy
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from typing import Any

from headrace_engine.prediction.length_scale import length_step, step_start
from headrace_engine.prediction.predictor import Features
from headrace_engine.prediction.quantile import COARSE

TOKENS, CATEGORIES = 1 << 14, 1 << 12  # rows of the table for each
HEAD, TAIL = 64, 192  # tokens of a prompt that are looked at: what it is about is told at its ends
WIDTH, HIDDEN = 16, 64
FINENESS = 3  # of the steps of length: each is at most an eighth longer than the one before
LONGEST = 1 << 17
STEPS = length_step(LONGEST - 1, FINENESS) + 1
LEARNING_RATE = 3e-3
LEAST = 0.02  # share of the lengths that must be longer than what a request has
MIX = 2_654_435_761  # Knuth's multiplicative hash


@dataclass(frozen=True, slots=True)
class Sight:
    """What the network sees of one request."""

    tokens: array[int]  # as rows of the table, never none
    categories: array[int]  # likewise
    numbers: tuple[float, float, float]


def see_request(features: Features, expected: float) -> Sight:
    """Look at a request as the network does; `expected`: what `Quantile` says."""
    tokens: Sequence[int] = features.token_ids or ()
    if len(tokens) > HEAD + TAIL:
        tokens = [*tokens[:HEAD], *tokens[-TAIL:]]
    prompt, limit = max(features.prompt_tokens, 0), max(features.max_tokens, 0)
    named = (length_step(prompt, COARSE), length_step(limit, COARSE), features.prefix)
    return Sight(
        array("i", [0, *(1 + token % (TOKENS - 1) for token in tokens)]),
        array(
            "i", [TOKENS + ((3 * value + kind) * MIX >> 8) % CATEGORIES for kind, value in enumerate(named)]
        ),
        (log2(1 + prompt) / 16, log2(1 + limit) / 16, log2(1 + expected) / 16),
    )


class Network:
    """Weights on the CPU; the same seed and the same batches make the same network. Imports torch."""

    def __init__(self, seed: int = 0) -> None:
        import torch  # noqa: PLC0415 - only where it is asked for

        self._torch = torch
        chance = torch.Generator().manual_seed(seed)

        def weights(*shape: int, scale: float) -> Any:
            made = torch.randn(*shape, generator=chance, dtype=torch.float32, device="cpu") * scale
            return made.requires_grad_()

        inputs = 2 * WIDTH + 3
        self._weights = [
            weights(TOKENS + CATEGORIES, WIDTH, scale=0.3),
            weights(HIDDEN, inputs, scale=inputs**-0.5),
            weights(HIDDEN, scale=0),
            weights(STEPS, HIDDEN, scale=HIDDEN**-0.5),
            weights(STEPS, scale=0),
        ]
        self._adam: Any = torch.optim.Adam(self._weights, lr=LEARNING_RATE)

    def train(self, sights: Sequence[Sight], output_tokens: Sequence[int]) -> None:
        """Make one step of descent on the cross entropy of these requests' lengths."""
        torch = self._torch
        steps = torch.tensor([length_step(min(tokens, LONGEST - 1), FINENESS) for tokens in output_tokens])
        self._adam.zero_grad()
        torch.nn.functional.cross_entropy(self._forward(sights), steps).backward()
        self._adam.step()

    def frozen(self) -> Frozen:
        """Copy the network for predictions, which further training does not change."""
        twin = copy.copy(self)
        twin._weights = [each.detach().clone() for each in self._weights]  # noqa: SLF001
        twin._adam = None  # noqa: SLF001
        return Frozen(twin)

    def shares(self, sights: Sequence[Sight]) -> list[list[float]]:
        """Return, of each request, the share of each step of length, added up from the shortest."""
        torch = self._torch
        with torch.inference_mode():
            summed: list[list[float]] = self._forward(sights).softmax(1).cumsum(1).tolist()
        return summed

    def _forward(self, sights: Sequence[Sight]) -> Any:
        torch, functional = self._torch, self._torch.nn.functional
        table, first, first_bias, second, second_bias = self._weights
        rows, starts = array("i"), array("i")
        for each in sights:
            for bag in (each.tokens, each.categories):
                starts.append(len(rows))
                rows.extend(bag)
        means = functional.embedding_bag(
            torch.frombuffer(rows, dtype=torch.int32),
            table,
            torch.frombuffer(starts, dtype=torch.int32),
            mode="mean",
        )
        numbers = torch.tensor([each.numbers for each in sights])
        inputs = torch.cat([means.view(len(sights), 2 * WIDTH), numbers], 1)
        hidden = functional.relu(functional.linear(inputs, first, first_bias))
        return functional.linear(hidden, second, second_bias)


class Frozen:
    """A trained network that predicts."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def quantiles(self, sights: Sequence[Sight], share: float) -> list[float]:
        """Return the `share` quantile of each request's output tokens."""
        return [quantile(summed, share) or 1.0 for summed in self._network.shares(sights)]

    def quantile(self, seen: Sight, share: float, output_so_far: int = 0) -> float | None:
        """Return the `share` quantile of a request with `output_so_far` tokens; None: it knows too little."""
        return quantile(self._network.shares([seen])[0], share, output_so_far)


def quantile(summed: Sequence[float], share: float, floor: int = 0) -> float | None:
    """Return the quantile above `floor` of shares added up over the steps of length, even within each.

    None where less than `LEAST` is above it.
    """
    step = min(length_step(floor, FINENESS), STEPS - 1)
    start, end = step_start(step, FINENESS), step_start(step + 1, FINENESS)
    before = summed[step - 1] if step else 0.0
    below = before + (summed[step] - before) * min((floor + 1 - start) / (end - start), 1.0)
    if summed[-1] - below < LEAST:
        return None
    wanted = below + share * (summed[-1] - below)
    while step < STEPS - 1 and summed[step] < wanted:
        before = summed[step]
        step += 1
    start, end = step_start(step, FINENESS), step_start(step + 1, FINENESS)
    within = (wanted - before) / (summed[step] - before) if summed[step] > before else 1.0
    return start + min(max(within, 0.0), 1.0) * (end - 1 - start)
