"""Estimates before a batch is served: how long it will take, and how many requests fit into it.

Equations are those of the paper (SCLS, sections 4.2 and 4.3). A batch of N requests is padded to its longest
input of L tokens, and every request of it generates as many tokens as the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

Bilinear = tuple[float, float, float, float]
"""Factors of N times L, of N, of L, and of 1."""
Seconds = Callable[[int, int], float]
"""What one iteration takes, by batch size and by tokens of each request: input or cached."""
MostRequests = Callable[[int], int]
"""How many requests fit into a batch, by the tokens of its longest once it is served: input and slice."""


@dataclass(frozen=True, slots=True)
class ServingTime:
    """How long batches take; factors in seconds."""

    prefill: Bilinear  # p1 to p4 of equation 3
    decode: Bilinear  # d1 to d4 of equation 4

    def seconds(self, requests: int, length: int, iterations: int) -> float:
        """Estimate the seconds of a batch of so many requests of input `length` (equations 1 and 2)."""
        per_request, rest = self.linear(length, iterations)
        return per_request * requests + rest

    def linear(self, length: int, iterations: int) -> tuple[float, float]:
        """Return the seconds for each request of a batch, and those that are the same for any number."""
        cached = iterations * length + iterations * (iterations + 1) / 2  # sum of L + l, l from 1 on
        p1, p2, p3, p4 = self.prefill
        d1, d2, d3, d4 = self.decode
        return (
            p1 * length + p2 + d1 * cached + d2 * iterations,
            p3 * length + p4 + d3 * cached + d4 * iterations,
        )


def fit(prefill: Seconds, decode: Seconds, sizes: Iterable[int], lengths: Iterable[int]) -> ServingTime:
    """Fit both by least squares to what single iterations take at all of these sizes and lengths."""
    profiled = [(size, length) for size in sizes for length in lengths]
    terms = np.array([(size * length, size, length, 1.0) for size, length in profiled])

    def fitted(seconds: Seconds) -> Bilinear:
        measured = np.array([seconds(*each) for each in profiled])
        first, second, third, fourth = np.linalg.lstsq(terms, measured, rcond=None)[0].tolist()
        return first, second, third, fourth

    return ServingTime(fitted(prefill), fitted(decode))


def fits_in(tokens: float, share: float) -> MostRequests:
    """Allow as many requests as fit into this `share` of a KV cache of `tokens` (equations 5 to 9)."""
    return lambda longest: int(share * tokens / longest)


def deepspeed_rule(longest: int) -> int:
    """Return how many requests DeepSpeed-Inference serves at once (Algorithm 2)."""
    if longest > 1024:
        return 12
    return 22 if longest > 512 else 28
