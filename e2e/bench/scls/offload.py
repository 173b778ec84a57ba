"""Which worker serves which batch, and when the next are made (sections 4.5 and 4.6 of the SCLS paper)."""

from __future__ import annotations

from collections.abc import Sequence

SHARE = 0.5  # lambda of equation 12


def max_min(seconds: Sequence[float], loads: Sequence[float]) -> list[tuple[int, int]]:
    """Choose a worker for each batch by its estimated seconds; returns (batch, worker), first given first.

    The batch that takes longest goes first, to the worker with the least load, whose load grows by as much
    (equation 11).
    """
    loads = list(loads)
    given = []
    for batch in sorted(range(len(seconds)), key=lambda each: -seconds[each]):
        worker = min(range(len(loads)), key=loads.__getitem__)
        given.append((batch, worker))
        loads[worker] += seconds[batch]
    return given


def interval(loads: Sequence[float], least: float) -> float:
    """Return the seconds until the next batches are made, `least` or more (equation 12)."""
    return max(SHARE * min(loads), least)
