"""Host time: what a step takes, and numbers that no host can have."""

import re

import pytest

from headrace_engine.cost.host import HostTime


def test_a_step_takes_a_fixed_part_and_one_for_each_request():
    assert HostTime(per_step=1.0, per_request=0.5).step_seconds(4) == 3.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"per_request": -1e-6}, "per_request: -1e-06 is not 0 or more"),
        ({"exposed": 1.5}, "exposed: 1.5 is not a share"),
    ],
)
def test_impossible_times_are_refused(wrong, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        HostTime(**wrong)
