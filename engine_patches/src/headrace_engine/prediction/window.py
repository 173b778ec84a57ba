"""The last values of a series, kept in order of size, so that quantiles cost a look-up."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from math import ceil

LARGEST = 2**32 - 1


class Window:
    """The last `size` whole numbers, clipped to [0, LARGEST]; 8 bytes each, at most."""

    __slots__ = ("_next", "_recent", "_size", "_sorted")

    def __init__(self, size: int) -> None:
        self._size = size
        self._recent = array("I")
        self._sorted = array("I")
        self._next = 0  # the oldest one's place, once full

    def __len__(self) -> int:
        return len(self._recent)

    def add(self, value: int) -> None:
        """Take one value in; the oldest leaves once there are `size`."""
        value = min(max(value, 0), LARGEST)
        if len(self._recent) < self._size:
            self._recent.append(value)
        else:
            oldest = self._recent[self._next]
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._recent[self._next] = value
            self._next = (self._next + 1) % self._size
        insort(self._sorted, value)

    def above(self, floor: int) -> int:
        """Count the values that are greater than `floor`."""
        return len(self._sorted) - bisect_right(self._sorted, floor)

    def quantile(self, share: float, floor: int = -1) -> int:
        """Return the smallest value that `share` of those above `floor` do not exceed; there must be one."""
        values = self._sorted
        start = bisect_right(values, floor) if floor >= 0 else 0
        count = len(values) - start
        return values[start + max(ceil(share * count) - 1, 0)]

    def place(self, rank: int) -> int:
        """Return the value with `rank` others before it, in order of size."""
        return self._sorted[rank]
