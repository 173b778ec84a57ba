"""Steps are timed as the engine sees them, and become a cost model as soon as someone wants one."""

from types import SimpleNamespace

import pytest

from headrace_engine.adapter.step_timer import StepTimer
from headrace_engine.cost.fit import REFIT


def step(tokens):
    """A step with one new prompt of `tokens` tokens."""
    new = [SimpleNamespace(req_id="r", num_computed_tokens=0)]
    cached = SimpleNamespace(req_ids=[], num_computed_tokens=[])
    return SimpleNamespace(
        num_scheduled_tokens={"r": tokens},
        scheduled_spec_decode_tokens={},
        scheduled_encoder_inputs={},
        scheduled_new_reqs=new,
        scheduled_cached_reqs=cached,
        total_num_scheduled_tokens=tokens,
    )


def teach(step_timer, now=0.0):
    for number in range(REFIT):
        output = step(10 + number)
        step_timer.record_plan(output, now)
        now += 0.01 + 0.001 * (10 + number)
        step_timer.record_delivery(output, now)


def deliver(step_timer, output, now):
    """The sample of a step whose tokens came at `now`; None if it makes none."""
    step_timer.record_delivery(output, now)
    samples = step_timer.take_samples()
    assert len(samples) <= 1
    return samples[0] if samples else None


def test_an_engine_learns_its_cost_from_its_steps():
    step_timer = StepTimer()
    teach(step_timer)
    sample = step_timer.take_samples()[-1]
    assert (sample.prefill_tokens, sample.seconds) == (9 + REFIT, pytest.approx(0.019 + 0.001 * REFIT))
    assert step_timer.cost.fixed == pytest.approx(0.01)
    assert step_timer.cost is step_timer.cost


def test_nothing_is_learned_until_it_is_asked_for():
    step_timer = StepTimer(always=False)
    teach(step_timer)
    assert not step_timer.take_samples()
    assert step_timer.cost is None
    teach(step_timer, now=100.0)
    assert step_timer.cost is not None


def test_a_known_cost_is_told_at_once():
    known = object()
    assert StepTimer(known, always=False).cost is known


def test_steps_that_overlap_are_timed_from_the_end_of_the_one_before():
    step_timer, first, second = StepTimer(), step(10), step(20)
    step_timer.record_plan(first, 0.0)
    step_timer.record_plan(second, 0.1)
    assert deliver(step_timer, first, 1.0).seconds == pytest.approx(1.0)
    assert deliver(step_timer, second, 1.5).seconds == pytest.approx(0.5)


def test_a_step_that_was_never_planned_has_no_sample():
    step_timer = StepTimer()
    step_timer.record_plan(step(10), 0.0)
    assert deliver(step_timer, step(10), 1.0) is None


def test_an_empty_step_does_not_end_the_timing_of_those_in_flight():
    step_timer, first, empty, second = StepTimer(), step(10), step(0), step(20)
    step_timer.record_plan(first, 0.0)
    step_timer.record_plan(empty, 0.1)
    step_timer.record_plan(second, 0.2)
    assert deliver(step_timer, first, 1.0).seconds == pytest.approx(1.0)
    assert deliver(step_timer, empty, 1.1) is None
    assert deliver(step_timer, second, 1.5).seconds == pytest.approx(0.4)


def test_samples_are_taken_once_and_learned_from_all_the_same():
    step_timer = StepTimer()
    teach(step_timer)
    assert len(step_timer.take_samples()) == REFIT
    assert not step_timer.take_samples()
    assert step_timer.cost is not None


def test_where_nobody_takes_samples_none_are_kept_but_they_teach():
    step_timer = StepTimer()
    step_timer.mute()
    teach(step_timer)
    assert not step_timer.take_samples()
    assert step_timer.cost is not None
