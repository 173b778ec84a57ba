"""The study of slices on real engines: what a run comes to, and requests that its engines can hold."""

import pytest

from e2e.bench.live.cases import DEVICES
from e2e.bench.slices_live.study import (
    BLOCKS,
    LONGEST,
    METRICS,
    PART,
    REQUESTS,
    SLICE,
    WARM_UP,
    Seen,
    Setting,
    of_run,
)

BLOCK = DEVICES["cpu"].settings.block_size


def test_the_first_requests_of_a_run_do_not_count():
    first = [Seen(100.0, 100.0, 100.0, 100.0)] * int(WARM_UP * 10)
    figures = of_run([*first, *(Seen(1.0, 2.0, 3.0, number) for number in range(6))])
    assert figures == {
        **dict.fromkeys(METRICS, pytest.approx(2.5)),
        "e2e_p95": pytest.approx(4.75),
        "ttft_mean": 1.0,
        "ttft_max": 1.0,
        "tpot_mean": 2.0,
        "gap_p95": 3.0,
    }


def test_requests_are_a_part_of_the_recorded_ones_and_fit():
    setting = Setting("conversation", "conversation", 1.0)
    requests = setting.requests(seed=0)
    assert len(requests) == REQUESTS
    assert max(each.tokens for each in requests) <= min(LONGEST, BLOCKS * BLOCK)
    assert min(each.output_tokens for each in requests) >= 2
    assert SLICE.tokens * PART == 512
    assert SLICE.tokens >= BLOCK
