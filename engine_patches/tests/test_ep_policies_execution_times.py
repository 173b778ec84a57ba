"""Execution times: budget and what is left of them, against a count over all samples."""

from math import inf
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.policies.doubling_budget.execution_times import LEAST_FINISHED, SAMPLES, ExecutionTimes

seconds = st.floats(0.0, 1000.0)


@given(st.lists(seconds, max_size=SAMPLES + 40), st.lists(seconds, max_size=5))
def test_budget_and_residual_are_those_of_the_last_samples(finished, executed):
    times = ExecutionTimes()
    for count, each in enumerate(finished, 1):
        times.record(each)
        if count % 50 == 0:
            times.residual(each)
    last = finished[-SAMPLES:]
    wanted = fmean(last) + pstdev(last) if len(last) >= LEAST_FINISHED else inf
    assert times.budget == pytest.approx(wanted)
    for so_far in executed:
        longer = [each - so_far for each in last if each > so_far]
        assert times.residual(so_far) == pytest.approx(fmean(longer) if longer else so_far, abs=1e-6)
