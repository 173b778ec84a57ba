"""How many replicas are enough: a search that tries several numbers at a time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def find_fewest(
    enough: Callable[[Sequence[int]], Sequence[bool]], first: int, most: int, at_once: int
) -> int | None:
    """Return the smallest number from 1 to `most` that is enough, None if none is; more is never worse.

    `enough` tells of up to `at_once` numbers together. The search starts at `first` and goes up no more than
    twofold at a time, since large fleets take long to simulate.
    """
    low, high = 0, most + 1  # low is not enough; high is, or is out of reach
    tried = [min(first, most)]
    while high - low > 1:
        for number, is_enough in zip(tried, enough(tried), strict=True):
            if is_enough:
                high = min(high, number)
            else:
                low = max(low, number)
        top = min(high, 2 * low + 1) if high > most else high
        steps = min(at_once, top - low - 1)
        tried = [low + -(-(top - low) * step // (steps + 1)) for step in range(1, steps + 1)] or [low + 1]
    return high if high <= most else None
