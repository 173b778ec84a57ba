"""Estimators: what an engine did becomes what is told of it, and that is never nonsense."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sc_fake_engine import finished

from headrace_engine.control.records import StepSample
from headrace_sidecar.estimates import LEAST_SHARE, Estimates, Rates


def step(prefill, decodes, seconds):
    return StepSample(prefill, 0, decodes, 0, seconds)


def test_nothing_is_said_before_there_is_something_to_say():
    assert Estimates().rates(2048) == Rates()
    assert Estimates().cost() is None


def test_steps_become_a_cost_and_a_rate():
    estimates = Estimates()
    estimates.add_steps(step(n % 40, 0, 0.008 + 5e-5 * (n % 40)) for n in range(2000))
    assert estimates.cost().per_prefill == pytest.approx(5e-5, rel=1e-6)
    assert estimates.rates(2048).prefill_tokens_per_second == pytest.approx(2048 / (0.008 + 2048 * 5e-5))


durations = st.floats(1e-6, 600)
anything = st.builds(step, st.integers(0, 2**32 - 1), st.integers(0, 500), st.one_of(durations, st.floats()))


@given(st.lists(anything, max_size=40), st.lists(st.floats(), max_size=4), st.integers(0, 2**32 - 1))
def test_whatever_was_measured_rates_are_finite_and_not_negative(measured, waits, tokens):
    estimates = Estimates()
    estimates.add_steps(measured)
    for seconds in waits:
        estimates.add_turn_wait(seconds)
    rates = estimates.rates(tokens)
    assert 0 <= rates.prefill_tokens_per_second < math.inf
    assert 0 <= rates.step_seconds <= 600 / LEAST_SHARE


def busy(estimates, seconds, waited):
    """Compute for so long, 10 ms at a time, and wait as long as that takes `waited` times."""
    for n in range(round(100 * seconds)):
        estimates.add_steps([step(n % 40, 0, 0.008 + 5e-5 * (n % 40))])
        estimates.add_turn_wait(0.01 * waited)


def test_who_shares_a_gpu_is_as_fast_as_its_share():
    alone, sharing = Estimates(), Estimates()
    busy(alone, 20, waited=0)
    busy(sharing, 20, waited=3)
    rates, shared = alone.rates(2048), sharing.rates(2048)
    assert shared.prefill_tokens_per_second == pytest.approx(rates.prefill_tokens_per_second / 4, rel=0.1)
    assert shared.step_seconds == pytest.approx(4 * rates.step_seconds, rel=0.1)
    assert sharing.cost() == alone.cost()
    busy(sharing, 60, waited=0)
    assert sharing.rates(2048).step_seconds == pytest.approx(rates.step_seconds, rel=0.01)


def test_requests_and_steps_are_averaged():
    estimates = Estimates()
    estimates.add_steps(step(0, n % 64, 0.01) for n in range(200))
    estimates.add_finished(
        [finished(prompt_tokens=100, output_tokens=10), finished(prompt_tokens=300, output_tokens=30)]
    )
    rates = estimates.rates(2048)
    assert rates.step_seconds == pytest.approx(0.01)
    assert rates.mean_prompt_tokens == pytest.approx(200, rel=0.01)
    assert rates.mean_output_tokens == pytest.approx(20, rel=0.01)
