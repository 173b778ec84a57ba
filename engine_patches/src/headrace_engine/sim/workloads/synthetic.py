"""Lengths drawn from what a paper's table says of data that we do not have; synthetic in every figure.

EconoServe's Table 2 gives mean, least and greatest lengths of Alpaca and BookCorpus in tokens. Between those,
lengths are drawn from an exponential distribution above the least, or, where the mean is beyond the middle of
the range, from a triangular one with that mean. Lengths are cut so that prompt and output fit in `LONGEST`.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

from headrace_engine.sim.workloads.arrival import Arrival

LONGEST = 2048  # OPT's context; EconoServe cut BookCorpus to it
COUNT = 10_000  # requests of each


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, least and greatest of a length."""

    mean: float
    least: int
    most: int

    def draw(self, chance: random.Random) -> int:
        """Draw one length at random."""
        if self.mean - self.least > (self.most - self.least) / 2:
            peak = 3 * self.mean - self.least - self.most
            return round(chance.triangular(self.least, self.most, min(max(peak, self.least), self.most)))
        return min(self.least + round(chance.expovariate(1 / (self.mean - self.least))), self.most)


@functools.cache
def alpaca() -> tuple[Arrival, ...]:
    """Make requests with short instructions and short answers; all arrive at 0."""
    return _lengths("alpaca", Spread(19.31, 9, 2470), Spread(58.41, 13, 292))


@functools.cache
def bookcorpus() -> tuple[Arrival, ...]:
    """Make requests with long passages and long answers; all arrive at 0."""
    return _lengths("bookcorpus", Spread(1952.11, 18, 461_000), Spread(681.2, 32, 1041))


def _lengths(name: str, prompts: Spread, outputs: Spread) -> tuple[Arrival, ...]:
    chance = random.Random(f"{name} of EconoServe's Table 2")  # noqa: S311  (no secret)
    made = []
    for _ in range(COUNT):
        output = outputs.draw(chance)
        made.append(Arrival(0.0, min(prompts.draw(chance), LONGEST - output), output))
    return tuple(made)
