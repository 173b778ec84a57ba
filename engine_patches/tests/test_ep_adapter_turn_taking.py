"""Engines that share a GPU compute one at a time, and answer what they would answer alone."""

import pytest
from ep_adapter_trial import BASES, MARKS, Trial, load
from ep_turns import serving, settled

from headrace_engine.contracts import PolicyDocument
from headrace_engine.control.records import TurnCode
from headrace_engine.policies import registry

pytestmark = MARKS


@pytest.fixture
def impatient(monkeypatch):
    """Engines of one thread: to wait for long would keep the other from giving its turn away."""
    from headrace_engine.adapter import turn_taking

    monkeypatch.setattr(turn_taking, "WAIT_SECONDS", 0.001)


def sharing(asynchronous, group, policies=("FCFS", "FCFS")):
    """Two engines of one group."""
    trials = [Trial(asynchronous, PolicyDocument(policy).sealed()) for policy in policies]
    for trial in trials:
        trial.link.turn_group = group
    return trials


def serve(trials, loads, check):
    """Give each engine a pass in turn until all have served; all requests are there from the start."""
    for trial, requests in zip(trials, loads, strict=True):
        for request in requests:
            trial.scheduler.add_request(request)
    while any(trial.engine._in_flight or trial.scheduler.has_requests() for trial in trials):
        for trial in trials:
            if trial.engine._in_flight or trial.scheduler.has_requests():
                trial.engine.turn()
            check()


def computing(trial):
    """Whether a step with tokens is in flight."""
    return any(output.total_num_scheduled_tokens for output, _ in trial.engine._in_flight)


@BASES
@pytest.mark.parametrize(
    "policies", [("FCFS", "FCFS"), ("EconoServe", "DoublingBudget"), ("LARRY", "AccelGen")]
)
@pytest.mark.usefixtures("impatient")
def test_two_never_compute_at_once_and_nothing_is_lost(asynchronous, policies):
    assert set(policies) <= set(registry.policy_names())
    loads = load(25, seed=1), load(25, seed=2)
    with serving(starvation=0.01) as (turns, group):
        trials = sharing(asynchronous, group, policies)

        def check():
            assert sum(map(computing, trials)) <= 1

        serve(trials, loads, check)
        assert settled(turns), "an engine that has served gives its turn away"
        for trial, requests in zip(trials, loads, strict=True):
            trial.nothing_is_lost(requests)
            assert trial.scheduler._guard.fallback_steps == 0
            assert trial.scheduler._turn_counts.code is TurnCode.IN_TURNS
            assert trial.scheduler._turn_counts.wait_seconds > 0
            trial.scheduler.shutdown()
        assert sum(trial.scheduler._turn_counts.turns for trial in trials) == turns.granted > 4


@BASES
def test_alone_in_its_group_an_engine_serves_as_without_one(asynchronous):
    alone = Trial(asynchronous, PolicyDocument("LARRY").sealed()).run(load())
    with serving() as (turns, group):
        [member, _] = sharing(asynchronous, group, ("LARRY", "LARRY"))
        member.run(load())
        member.scheduler.shutdown()
        assert member.course == alone.course
        assert turns.granted > 0


@BASES
def test_without_a_server_an_engine_serves_as_without_a_group(asynchronous):
    alone = Trial(asynchronous, PolicyDocument("FCFS").sealed()).run(load())
    with serving() as (_, group):
        pass
    [member, _] = sharing(asynchronous, group)
    assert member.run(load()).course == alone.course
    assert member.scheduler._turn_counts.code is TurnCode.ALONE
    assert member.scheduler._turn_counts.turns == 0


@BASES
def test_a_group_is_joined_left_and_changed_while_the_engine_serves(asynchronous):
    trial = Trial(asynchronous, PolicyDocument("FCFS").sealed())
    with serving() as (first, one), serving() as (second, other):
        groups = iter([None] * 30 + [one] * 60 + [other] * 60 + [None] * 100_000)

        def next_group():
            trial.link.turn_group = next(groups)

        trial.engine.before_step = next_group
        trial.run(load())
        assert first.granted
        assert second.granted
        assert trial.scheduler._turns is None
        assert trial.scheduler._turn_counts.code is TurnCode.NONE
        assert trial.scheduler._turn_counts.turns == first.granted + second.granted
        assert settled(first)
        assert settled(second)


@BASES
def test_a_group_that_fails_inside_costs_the_turns_and_not_the_engine(asynchronous, monkeypatch):
    from headrace_engine.adapter.turn_taking import TurnTaking

    def fails(*_):
        raise RuntimeError("made to fail")

    for name in ("note_scheduled", "note_computed", "note_ended", "rest_if_idle"):
        monkeypatch.setattr(TurnTaking, name, fails)
    with serving() as (_, group):
        [trial, _] = sharing(asynchronous, group)
        trial.run(load(20))
        trial.scheduler.shutdown()


@BASES
@pytest.mark.usefixtures("impatient")
def test_a_step_without_a_turn_is_not_logged_as_a_pause(asynchronous, monkeypatch):
    with serving() as (_, group):
        trials = sharing(asynchronous, group)
        for trial in trials:
            monkeypatch.setattr(trial.scheduler, "set_pause_state", pytest.fail)  # vLLM's own, which logs
        serve(trials, [load(10, seed=1), load(10, seed=2)], lambda: None)
        for trial in trials:
            assert trial.scheduler._turn_counts.wait_seconds > 0
            trial.scheduler.shutdown()
