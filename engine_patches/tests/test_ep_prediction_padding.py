"""Padding is the least that keeps requests which outgrow it at the share wanted."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_engine.prediction.padding import FEWEST, Padding


def outgrown(pairs, percent):
    return sum(length > predicted * (1 + percent / 100) + 1e-6 for predicted, length in pairs)


PAIRS = st.lists(st.tuples(st.integers(1, 500).map(float), st.integers(0, 900)), min_size=FEWEST, max_size=50)


@settings(max_examples=30)
@given(PAIRS, st.integers(0, 100), st.integers(FEWEST, 40))
def test_it_is_the_least_that_meets_the_target(pairs, target, window):
    padding = Padding(target, most=10**6, window=window)
    for predicted, length in pairs:
        padding.record_finished(predicted, length)
    last = pairs[-window:]
    assert outgrown(last, padding.percent) <= len(last) * target / 100
    if padding.percent:
        assert outgrown(last, padding.percent - 1) > len(last) * target // 100


def test_at_first_it_is_what_it_was_given():
    padding = Padding(initial=15)
    for _ in range(FEWEST - 1):
        padding.record_finished(100, 500)
    assert padding.percent == 15
    padding.record_finished(100, 500)
    assert padding.percent == 100


def test_no_more_than_the_most():
    padding = Padding(0, most=40)
    for _ in range(100):
        padding.record_finished(0.0, 10**15)
    assert padding.percent == 40


@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_it_follows_the_predictors_error(spread):
    chance, padding = random.Random(1), Padding(25)
    outgrew = 0
    for number in range(4000):
        length = int(100 * chance.lognormvariate(0, spread))
        outgrew += number >= 1000 and length > 100 * (1 + padding.percent / 100)
        padding.record_finished(100, length)
    assert outgrew / 3000 == pytest.approx(0.25, abs=0.03)
