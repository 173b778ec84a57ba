"""How wide intervals are, and when a gain is sure."""

import dataclasses
import math
import statistics

import pytest

from headrace_operator.simulate.figures import Figures, Spread
from headrace_operator.simulate.intervals import (
    DRAWS,
    STUDENT,
    Interval,
    compare,
    excludes_no_change,
    find_intervals,
    plan_draws,
)

EXACT = {"ttft": 1.0, "tpot": 1.0, "e2e": 1.0}


def figures(e2e=10.0, met=0.8, tpot=0.02):
    return Figures(
        requests=100,
        refused=0,
        ttft=Spread(e2e / 10, e2e / 10, e2e / 10, e2e / 10),
        tpot=tpot and Spread(tpot, tpot, tpot, tpot),
        e2e=Spread(e2e, e2e, e2e, e2e),
        longest_wait=1.0,
        preemptions=0,
        met={"all": met},
    )


def around(*values):
    """As many draws as an interval needs, which alternate between the values."""
    return [figures(**values[number % len(values)]) for number in range(DRAWS)]


def test_a_time_is_as_sure_as_the_draws_are_alike():
    [e2e] = [find_intervals(figures(), around({"e2e": 8.0}, {"e2e": 12.5}), EXACT)["e2e_mean"]]
    half = STUDENT[DRAWS] * statistics.stdev([math.log(0.8), math.log(1.25)] * (DRAWS // 2))
    assert e2e == Interval(10.0, pytest.approx(10 * math.exp(-half)), pytest.approx(10 * math.exp(half)))
    same = find_intervals(figures(), around({}), EXACT)["e2e_mean"]
    assert same == Interval(10.0, 10.0, 10.0)


def test_a_time_is_no_surer_than_its_known_error():
    found = find_intervals(figures(), around({}), {"ttft": 2.0, "tpot": 1.1, "e2e": 1.25})
    assert found["ttft_p95"] == Interval(1.0, pytest.approx(0.5), pytest.approx(2.0))
    assert found["tpot_mean"].high == pytest.approx(0.022)
    assert found["e2e_mean"].low == pytest.approx(8.0)


def test_a_share_stays_one():
    found = find_intervals(figures(met=0.98), around({"met": 0.9}, {"met": 1.0}), EXACT)["met_all"]
    assert found.low == pytest.approx(0.98 - STUDENT[DRAWS] * 0.05 * math.sqrt(DRAWS / (DRAWS - 1)))
    assert found.high == 1.0


def test_what_no_request_has_has_no_interval():
    assert "tpot_mean" not in find_intervals(figures(tpot=None), around({"tpot": None}), EXACT)
    assert "e2e_mean" not in find_intervals(
        figures(), [dataclasses.replace(figures(), e2e=None)] * DRAWS, EXACT
    )


def test_a_change_is_surer_than_either_setting_where_both_meet_the_same_draws():
    slow, fast = {"e2e": 20.0}, {"e2e": 5.0}
    old = around(slow, fast)
    new = around({"e2e": 15.9}, {"e2e": 4.0})
    change = compare(figures(e2e=8.0), figures(e2e=10.0), new, old)["e2e_mean"]
    assert change.value == pytest.approx(0.8)
    assert 0.79 < change.low < change.high < 0.81


@pytest.mark.parametrize(
    ("met", "e2e", "sure"),
    [
        (Interval(0.05, 0.01, 0.09), Interval(2, 1.5, 3), True),
        (Interval(0.05, -0.01, 0.11), Interval(0.5, 0.4, 0.6), False),
        (Interval(0.002, -0.01, 0.01), Interval(0.9, 0.85, 0.95), True),
        (Interval(0.002, -0.01, 0.01), Interval(0.9, 0.8, 1.02), False),
    ],
)
def test_a_gain_is_sure_where_both_ends_of_what_it_is_taken_for_have_it(met, e2e, sure):
    assert excludes_no_change({"met_all": met, "e2e_mean": e2e}) == sure


def test_step_times_are_drawn_from_the_known_error():
    draws = plan_draws(DRAWS, 1.2, 0)
    factors = sorted(draw.step_factor for draw in draws)
    assert len({draw.seed for draw in draws}) == DRAWS
    assert statistics.fmean(map(math.log, factors)) == pytest.approx(0, abs=1e-9)
    assert factors[1] > 1 / 1.2  # all but one draw at either end
    assert factors[-2] < 1.2
    assert factors[-1] > 1.15
    assert {draw.step_factor for draw in plan_draws(8, 1.0, 0)} == {1.0}
    assert {draw.seed for draw in plan_draws(DRAWS, 1.2, 1)}.isdisjoint(draw.seed for draw in draws)
