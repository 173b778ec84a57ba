"""Tables read along straight lines: between rows, below the first, beyond the last."""

import pytest

from headrace_engine.cost.grid import locate, read_line, read_plane

AXIS = [10, 20, 40]


@pytest.mark.parametrize(("size", "value"), [(5, 1.0), (10, 1.0), (15, 1.5), (30, 4.0), (40, 6.0), (50, 8.0)])
def test_a_line_stays_below_its_first_row_and_goes_on_beyond_its_last(size, value):
    assert read_line([1.0, 2.0, 6.0], locate(AXIS, size)) == pytest.approx(value)


def test_a_plane_is_straight_along_each_axis():
    plane = [[row * column for column in AXIS] for row in AXIS]
    for row in (12, 20, 35, 60):
        for column in (10, 17, 33, 80):
            assert read_plane(plane, locate(AXIS, row), locate(AXIS, column)) == pytest.approx(row * column)
