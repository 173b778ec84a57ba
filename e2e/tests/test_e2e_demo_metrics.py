"""What the demo's table says follows from the samples."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.demo import metrics
from e2e.demo.metrics import Sample, Targets


def request(ttft=0.1, tpot=0.01, e2e=1.0, error=""):
    return Sample("chat", 0.0, ttft=ttft, tpot=tpot, max_itl=tpot, e2e=e2e, output_tokens=9, error=error)


def test_latencies_of_one_request():
    sample = metrics.sample("chat", sent=10.0, token_times=[10.5, 10.6, 11.0])
    assert sample.ttft == pytest.approx(0.5)
    assert sample.tpot == pytest.approx(0.25)
    assert sample.max_itl == pytest.approx(0.4)
    assert sample.e2e == pytest.approx(1.0)
    assert sample.output_tokens == 3


def test_a_single_token_has_no_gap():
    sample = metrics.sample("chat", sent=0.0, token_times=[2.0])
    assert (sample.tpot, sample.max_itl, sample.e2e) == (0.0, 0.0, 2.0)


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (Targets(), True),
        (Targets(ttft=0.1, tpot=0.01, e2e=1.0), True),
        (Targets(ttft=0.09), False),
        (Targets(tpot=0.009), False),
        (Targets(e2e=0.9), False),
    ],
)
def test_every_target_counts(targets, expected):
    assert metrics.met(request(), targets) is expected


def test_a_failed_request_meets_nothing_and_has_no_latency():
    summary = metrics.summarise([request(), Sample("chat", 0.0, error="HTTP 503")], Targets())
    assert (summary.requests, summary.errors, summary.attainment) == (2, 1, 0.5)
    assert summary.ttft.p95 == pytest.approx(0.1)


def test_nothing_measured_is_not_a_number():
    summary = metrics.summarise([], Targets())
    assert math.isnan(summary.attainment)
    assert math.isnan(summary.e2e.p50)
    assert math.isnan(summary.e2e.mean)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(1, 100))
def test_percentile_is_the_least_value_that_enough_do_not_exceed(values, percent):
    ordered = sorted(values)
    found = metrics.percentile(ordered, percent)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= percent / 100 * len(ordered) - 1e-9
    assert sum(value < found for value in ordered) < percent / 100 * len(ordered)
