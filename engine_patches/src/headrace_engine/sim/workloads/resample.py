"""Another stretch of the same traffic: what a trace might as well have been.

The circular block bootstrap (Politis and Romano 1992, after Künsch 1989): requests in a row are drawn with
replacement until there are as many as before. What is drawn is simulated again: with queues, a request's time
depends on all that came before it, and outcomes of one simulation, cut apart and joined, vary too little. On
an M/M/1 queue at load 0.9 with 1,500 requests, 95 % intervals from 24 draws of arrivals hold the true mean in
92 % of runs, those from drawn outcomes in 55 % (20 blocks each).
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from headrace_engine.sim.workloads.arrival import Arrival

BLOCKS = 20  # in a stretch: long enough that bursts stay whole, enough of them that draws differ


def resample_arrivals(arrivals: Sequence[Arrival], seconds: float, seed: int) -> list[Arrival]:
    """Draw blocks of the requests of a stretch of `seconds`; as many requests, the first one at 0.

    After its last request a block goes on with the stretch's first. A request that is drawn again shares its
    prompt's beginning only with the others of that turn: else copies would meet in the prefix cache.
    """
    count = len(arrivals)
    length = -(-count // BLOCKS)
    gaps = [after.at - before.at for before, after in pairwise(arrivals)]
    gaps.append(max(0.0, seconds - arrivals[-1].at + arrivals[0].at))
    chance = random.Random(f"resample {seed}")  # noqa: S311  (no secret)
    apart = 1 + max((max(each.prefix, default=0) for each in arrivals), default=0)
    drawn: list[Arrival] = []
    turns: Counter[int] = Counter()
    at = 0.0
    while len(drawn) < count:
        start = chance.randrange(count)
        for number in range(start, start + min(length, count - len(drawn))):
            which = number % count
            each, turn = arrivals[which], turns[which]
            drawn.append(
                dataclasses.replace(each, at=at, prefix=tuple(name + turn * apart for name in each.prefix))
            )
            turns[which] += 1
            at += gaps[which]
    return drawn
