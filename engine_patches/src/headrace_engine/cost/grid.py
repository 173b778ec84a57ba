"""Straight lines between the rows of a table, along one axis or two.

Beyond its last row a table goes on straight, below the first it stays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

Place = tuple[int, float]  # index of the lower neighbour on an axis, weight of the upper one


def locate(axis: Sequence[float], value: float) -> Place:
    """Find between which of an ascending axis' two or more sizes a value lies."""
    if value <= axis[0]:
        return 0, 0.0
    index = min(bisect_right(axis, value), len(axis) - 1) - 1
    return index, (value - axis[index]) / (axis[index + 1] - axis[index])


def read_line(line: Sequence[float], place: Place) -> float:
    """Return the value of a line at a place."""
    i, right = place
    return line[i] + (line[i + 1] - line[i]) * right


def read_plane(plane: Sequence[Sequence[float]], row: Place, column: Place) -> float:
    """Return the value of a plane between four of its cells."""
    i, down = row
    above = read_line(plane[i], column)
    return above + (read_line(plane[i + 1], column) - above) * down
