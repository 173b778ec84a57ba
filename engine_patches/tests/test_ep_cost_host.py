"""Host time: what a step takes, and numbers that no host can have."""

import re

import pytest

from headrace_engine.cost.host import HostTime, server_host_time


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


def test_more_gpus_take_more_of_the_host():
    one, four = server_host_time(1), server_host_time(4)
    assert 0 < one.step_seconds(100) < four.step_seconds(100)
    assert server_host_time(2) == four
