"""Arrivals of a case, and lengths whose mean is what the case says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count

from headrace_engine.sim.workloads.arrival import Arrival
from headrace_operator.predict.cases import Case


def gaps(case: Case, seed: int) -> Iterator[float]:
    """Yield the seconds between two arrivals of an open loop, for ever."""
    chance, mean = random.Random(seed), 1 / case.rate  # noqa: S311  (no secret)
    while True:
        if case.process == "constant":
            yield mean
        elif case.process == "gamma":
            yield chance.gammavariate(case.burstiness, mean / case.burstiness)
        else:
            yield chance.expovariate(case.rate)


def requests(case: Case) -> Iterator[Arrival]:
    """Yield requests that arrive at 0, for ever; with `cycle` the prompts come in turn.

    All are as long as the means say, to within a token: what is forced to a length has it.
    """
    for number in count():
        which = number % case.cycle if case.cycle else number
        prompt = max(1, _share(case.prompt_tokens, which))
        output = max(1, _share(case.output_tokens, number))
        prefix, block = ((which,), prompt) if case.cycle else ((), 0)
        yield Arrival(0.0, prompt, output, prefix, block)


def _share(mean: float, number: int) -> int:
    """Return the whole part of `mean`, or one more, so that the first n sum up to n times the mean."""
    return int(mean * (number + 1)) - int(mean * number)
