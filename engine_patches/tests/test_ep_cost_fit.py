"""The fit of step times: it finds the truth of a known engine, follows a change, and never says nonsense."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.control.records import StepSample
from headrace_engine.cost.fit import (
    ME,
    MIN_PREFILLS,
    REFIT,
    DecayedMean,
    StepFit,
    cost_numbers,
    is_plausible,
    read_cost,
)
from headrace_engine.cost.forms import Linear
from headrace_engine.cost.model import Batch


def step(prefill, decodes, seconds):
    return StepSample(prefill, 0, decodes, 0, seconds)


def workload(count, seed, cost, noise=0.0, prefills=0.1):
    """Steps of an engine with this cost: mostly decodes, some with prefill chunks beside them."""
    source = random.Random(seed)
    for _ in range(count):
        prefill = source.randrange(1, 512) if source.random() < prefills else 0
        decodes = source.randrange(0, 64)
        seconds = cost.fixed + cost.per_prefill * prefill + cost.per_decode * decodes
        yield step(prefill, decodes, seconds * math.exp(source.gauss(0, noise)))


COST = Linear(ME, fixed=0.008, per_prefill=5e-5, per_decode=1e-4)


def full_step_rate(cost, tokens):
    return tokens / (cost.fixed + cost.per_prefill * tokens)


def test_a_known_engine_is_found_exactly():
    fit = StepFit()
    for sample in workload(3000, 1, COST):
        fit.add(sample)
    found = fit.cost()
    assert found.fixed == pytest.approx(COST.fixed, rel=1e-6)
    assert found.per_prefill == pytest.approx(COST.per_prefill, rel=1e-6)
    assert found.per_decode == pytest.approx(COST.per_decode, rel=1e-6)
    assert fit.prefill_rate(2048) == pytest.approx(full_step_rate(COST, 2048), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_noise_moves_the_rate_little(seed):
    fit = StepFit()
    for sample in workload(4000, seed, COST, noise=0.2):
        fit.add(sample)
    assert fit.prefill_rate(2048) == pytest.approx(full_step_rate(COST, 2048), rel=0.1)


def test_small_prefills_do_not_hide_a_fast_engine():
    """Prompts of some tokens run at a fraction of the rate that a full step reaches."""
    fit = StepFit()
    for n in range(500):
        tokens = 5 + n % 20
        fit.add(step(tokens, 0, COST.fixed + COST.per_prefill * tokens))
    assert fit.prefill_rate(2048) > 5 * (15 / (COST.fixed + COST.per_prefill * 15))


def test_a_change_of_speed_is_followed():
    fit = StepFit()
    for sample in workload(4000, 1, COST):
        fit.add(sample)
    slower = Linear(ME, COST.fixed * 3, COST.per_prefill * 3, per_decode=COST.per_decode * 3)
    for sample in workload(20_000, 2, slower):
        fit.add(sample)
    assert fit.prefill_rate(2048) == pytest.approx(full_step_rate(slower, 2048), rel=0.02)


def test_a_long_time_of_decodes_does_not_make_it_forget():
    fit = StepFit()
    for sample in workload(2000, 1, COST):
        fit.add(sample)
    for n in range(100_000):
        fit.add(step(0, n % 64, COST.fixed + COST.per_decode * (n % 64)))
    assert fit.prefill_rate(2048) == pytest.approx(full_step_rate(COST, 2048), rel=0.05)


def test_prefills_of_one_size_give_the_rate_that_was_seen():
    fit = StepFit()
    for _ in range(100):
        fit.add(step(128, 0, 0.016))
    assert fit.cost() is None
    assert fit.prefill_rate(2048) == pytest.approx(8000)


def test_nothing_is_said_before_there_is_something_to_say():
    fit = StepFit()
    assert fit.prefill_rate(2048) == 0
    for _ in range(500):
        fit.add(step(0, 3, 0.01))
    assert fit.prefill_rate(2048) == 0
    assert fit.cost() is None
    assert fit.latest is None


def full_workload(count, seed, cost, noise=0.0):
    """Steps as an engine has them: some decodes, and in one of five a chunk of some prompt."""
    source = random.Random(seed)
    for _ in range(count):
        chunk = source.randrange(2, 512) if source.random() < 0.2 else 0
        work = chunk * source.randrange(0, 2000) + chunk * chunk // 2
        decodes = source.randrange(0, 64)
        context = decodes * source.randrange(50, 3000)
        seconds = cost.step_seconds(Batch(chunk, work, decodes, context))
        yield StepSample(chunk, work, decodes, context, seconds * math.exp(source.gauss(0, noise)))


WHOLE = Linear(ME, fixed=0.008, per_prefill=5e-5, per_work=3e-9, per_decode=1e-4, per_context=1e-7)


def test_all_five_parts_of_a_cost_are_found():
    fit = StepFit()
    for sample in full_workload(3000, 1, WHOLE):
        fit.add(sample)
    found = fit.cost()
    for part in ("fixed", "per_prefill", "per_work", "per_decode", "per_context"):
        assert getattr(found, part) == pytest.approx(getattr(WHOLE, part), rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_steps_not_seen_are_predicted(seed):
    fit = StepFit()
    for sample in full_workload(4000, seed, WHOLE, noise=0.1):
        fit.add(sample)
    found = fit.cost()
    for sample in full_workload(200, seed + 100, WHOLE):
        batch = Batch(sample.prefill_tokens, sample.prefill_work, sample.decodes, sample.decode_context)
        assert found.step_seconds(batch) == pytest.approx(sample.seconds, rel=0.05)


def test_the_latest_cost_is_one_object_until_it_is_renewed():
    fit, told, prefills = StepFit(), [], [0]
    for sample in full_workload(10 * REFIT, 1, WHOLE):
        fit.add(sample)
        told.append(fit.latest)
        prefills.append(prefills[-1] + (sample.prefill_tokens > 0))
    renewed = [place for place in range(1, len(told)) if told[place] is not told[place - 1]]
    assert told[renewed[0] - 1] is None
    assert prefills[renewed[0] + 1] == MIN_PREFILLS
    assert prefills[renewed[1] + 1] <= 2 * MIN_PREFILLS
    assert max(after - before for before, after in pairwise(renewed)) <= REFIT
    assert len(renewed) <= len(told) / REFIT + math.log2(prefills[-1])


def test_eight_prefills_of_different_sizes_tell_the_cost():
    fit = StepFit()
    for sample in full_workload(1000, 2, WHOLE, noise=0.05):
        fit.add(sample)
        if fit.latest is not None:
            break
    for tokens in (64, 512, 2048):
        batch = Batch(tokens, tokens**2 / 2, 8, 8000)
        assert fit.latest.step_seconds(batch) == pytest.approx(WHOLE.step_seconds(batch), rel=0.3)


def test_what_a_prompt_token_took_at_best_bounds_what_it_takes_in_larger_steps():
    fit = StepFit()
    fit.add(step(0, 8, 0.01))
    assert fit.token_at_most is None
    for tokens in (10, 128, 64):
        fit.add(step(tokens, 0, WHOLE.step_seconds(Batch(tokens))))
    assert fit.token_at_most == pytest.approx(WHOLE.step_seconds(Batch(128)) / 128)
    assert WHOLE.step_seconds(Batch(1000)) < 1000 * fit.token_at_most


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, 601.0])
def test_what_no_step_takes_is_not_plausible(seconds):
    assert not is_plausible(step(1, 1, seconds))


def test_a_machine_that_stalls_now_and_then_is_not_taken_for_slow():
    fit = StepFit()
    for number, sample in enumerate(full_workload(4000, 1, WHOLE)):
        stalled = number > 200 and number % 50 == 0
        fit.add(sample._replace(seconds=sample.seconds + 2.0) if stalled else sample)
    batch = Batch(decodes=32, decode_context=32_000)
    assert fit.cost().step_seconds(batch) == pytest.approx(WHOLE.step_seconds(batch), rel=0.1)


def test_what_always_goes_together_is_told_once():
    """Decodes that all have the same context: only their sum can be known."""
    fit = StepFit()
    for n in range(1000):
        decodes, chunk = n % 40, 64 * (n % 3)
        fit.add(StepSample(chunk, chunk * 32, decodes, decodes * 1000, 0.01 + 1e-4 * chunk + 2e-4 * decodes))
    batch = Batch(64, 64 * 32, 20, 20_000)
    assert fit.cost().step_seconds(batch) == pytest.approx(0.01 + 0.0064 + 0.004, rel=1e-4)


durations = st.floats(1e-6, 600)
samples = st.builds(step, st.integers(0, 10_000), st.integers(0, 500), durations)


@given(st.lists(samples, max_size=40))
def test_no_fitted_cost_is_negative(measured):
    fit = StepFit(half_life=10)
    for sample in measured:
        fit.add(sample)
    cost = fit.cost()
    if cost is not None:
        assert cost.fixed >= 0
        assert cost.per_prefill > 0
        assert cost.per_work >= 0
        assert cost.per_context >= 0
        assert cost.per_decode >= 0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_a_mean_lies_among_its_values(values):
    mean = DecayedMean(half_life=5)
    for value in values:
        mean.add(value)
    assert min(values) * (1 - 1e-9) <= mean.value <= max(values) * (1 + 1e-9)


def test_a_value_counts_half_after_its_half_life():
    mean = DecayedMean(half_life=100)
    for _ in range(5000):
        mean.add(10)
    for _ in range(100):
        mean.add(20)
    assert mean.value == pytest.approx(15, rel=1e-3)


def test_a_fit_written_as_numbers_is_read_as_the_same():
    cost = Linear(ME, 0.01, 1e-4, 1e-8, 1e-3, 1e-6)
    assert read_cost(cost_numbers(cost)) == cost
