"""Speculative decoding on the real vLLM scheduler: what a step yields is learned, and deadlines know it.

vLLM's accounting of drafts is real; which of them the model accepts is made up, since that takes a device.
"""

import pytest
from ep_adapter_trial import BASES, MARKS, Trial, load
from test_ep_adapter_awkward import POLICIES

from headrace_engine.contracts import PerRequest, PolicyDocument, Slo, StepBudget
from headrace_engine.control.records import ErrorCode

pytestmark = MARKS
LEARNED = 100  # steps, after which it is known what a step yields


def drafting_trial(monkeypatch, asynchronous, document, blocks=256):
    from ep_drafts import DraftingEngine, drafting

    drafting(monkeypatch)
    trial = Trial(asynchronous, document, blocks=blocks)
    trial.engine = DraftingEngine(trial.scheduler, trial.engine.clock, depth=2 if asynchronous else 1)
    return trial


@BASES
@POLICIES
def test_everyone_is_served(monkeypatch, asynchronous, document):
    trial = drafting_trial(monkeypatch, asynchronous, document).run(load(40))
    assert trial.scheduler._step_timer.tokens_per_step == pytest.approx(
        4, abs=0.5
    )  # the last step of a request has less
    assert (trial.link.board.fallback_steps, trial.link.board.error_code) == (0, ErrorCode.NONE)


def known(count, output, every):
    """Requests of known length, one each `every` seconds."""
    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    requests = [make_request(str(each), 100, output, START + each * every) for each in range(count)]
    for request in requests:
        request.sampling_params.extra_args = {"headrace_output_tokens": output}
    return requests


@BASES
@pytest.mark.parametrize("policy", ["AccelGen", "EconoServe"])
def test_deadlines_count_the_tokens_that_a_step_yields(monkeypatch, asynchronous, policy):
    """400 tokens take 100 steps, not 400, so nobody is late who has time for 200 steps."""
    slo = Slo(e2e_ms=1800, per_request=PerRequest())
    trial = drafting_trial(monkeypatch, asynchronous, PolicyDocument(policy, slo=slo), blocks=4096)
    requests, late = known(40, 400, 0.1), []

    def look():
        view, planned = trial.scheduler._step._view, trial.scheduler._guard._policy
        if trial.engine.steps < LEARNED or planned is None:
            return
        order = planned.order
        for request in view.waiting:
            start = (
                order._deadlines.latest_start(request, view)
                if policy == "EconoServe"
                else order.latest_start(request, 100, view)
            )
            late.append(start < trial.engine.clock.now)

    trial.engine.before_step = look
    trial.run(requests)
    assert late
    assert not any(late)
    assert all(record.met == record.targets for record in trial.link.requests)


@BASES
def test_a_step_may_take_as_long_as_the_tokens_that_it_yields(monkeypatch, asynchronous):
    """With a target of 8 ms a token, steps of four tokens have 32 ms: room for whole prompts."""
    document = PolicyDocument("FCFS", step_budget=StepBudget("SLO"), slo=Slo(tpot_ms=8))
    trial, most = drafting_trial(monkeypatch, asynchronous, document, blocks=4096), []

    def look():
        generating = [each for each in trial.scheduler.running if each.num_output_tokens > 4]
        if trial.engine.steps > LEARNED and trial.scheduler._step_timer.cost and len(generating) > 3:
            most.append(trial.link.board.step_tokens)

    trial.engine.before_step = look
    trial.run(load(60))
    assert most
    assert sorted(most)[len(most) // 2] > 300  # tokens
    assert all(record.tpot < 0.0085 for record in trial.link.requests if record.output_tokens > 20)


def test_without_drafts_a_step_yields_one_token():
    trial = Trial(False, PolicyDocument("AccelGen")).run(load(10))
    assert trial.scheduler._step_timer.tokens_per_step == 1


@BASES
def test_what_can_not_be_learned_of_drafts_does_no_harm(monkeypatch, asynchronous):
    from headrace_engine.adapter.step_timer import StepTimer

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(StepTimer, "record_drafts", fail)
    trial = drafting_trial(monkeypatch, asynchronous, PolicyDocument("AccelGen")).run(load(20))
    assert trial.scheduler._step_timer.tokens_per_step == 1
