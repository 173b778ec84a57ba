"""AccelGen and step budget SLO on the real vLLM scheduler, its KV cache too small for the load."""

import pytest
from ep_adapter_trial import BASES, MARKS, Trial, load

from headrace_engine.contracts import PolicyDocument, Slo, StepBudget
from headrace_engine.control.records import ErrorCode
from headrace_engine.sim.form import Form

pytestmark = MARKS

MIXED = Slo(ttft_ms=800, tpot_ms=15, e2e_ms=5000)
NO_ONE_CAN = Slo(ttft_ms=1, tpot_ms=1)
FORMS = {  # parameters, and methods
    "as it is": ({}, {}),
    "/Order": ({}, {"ordering": False}),
    "/Chunk": ({}, {"exclusive": False}),
    "/Batch": ({}, {"selection": "MostUrgent"}),
    "Algorithm 2": ({}, {"selection": "NearestFit"}),
    "nobody moved ahead": ({"patience": 0}, {}),
    "no skipping, no preemption": ({}, {"skipping": False, "preemption": "Never"}),
    "always preempting, all as urgent": ({"gamma": 3_600_000}, {"preemption": "Always"}),
}


def fine(trial):
    board = trial.link.board
    return (board.fallback_steps, board.error_code) == (0, ErrorCode.NONE)


@BASES
@pytest.mark.parametrize(("parameters", "methods"), FORMS.values(), ids=FORMS)
def test_every_form_serves_everyone(asynchronous, parameters, methods):
    form = Form(PolicyDocument("AccelGen", parameters, slo=MIXED), methods)
    assert fine(Trial(asynchronous, form).run(load(50)))


@pytest.mark.parametrize(
    "slo", [Slo(), NO_ONE_CAN, Slo(e2e_scale_percent=200)], ids=["none", "hopeless", "scale"]
)
def test_targets_that_say_nothing_or_too_much(slo):
    form = Form(PolicyDocument("AccelGen", slo=slo), {"preemption": "Always"})
    assert fine(Trial(True, form).run(load(50)))


@BASES
@pytest.mark.parametrize("methods", [{}, {"skipping": True}], ids=["default", "skipping"])
def test_only_skipping_sends_tokens_of_running_requests_again(asynchronous, methods, monkeypatch):
    """vLLM's V1 model runner forgets who was not in a step, so the next step carries all of its tokens."""
    document = PolicyDocument("AccelGen", slo=Slo(ttft_ms=200, tpot_ms=300))
    trial = Trial(asynchronous, Form(document, methods), blocks=2048)
    assert not trial.scheduler.use_v2_model_runner
    schedule, again, skipped = trial.scheduler.schedule, [], []

    def watched():
        output = schedule()
        cached = output.scheduled_cached_reqs
        again.extend(set(cached.all_token_ids) - cached.resumed_req_ids)
        skipped.append(trial.link.board.skipped)
        return output

    monkeypatch.setattr(trial.scheduler, "schedule", watched)
    assert fine(trial.run(load(60)))
    assert trial.engine.preemptions == 0
    assert bool(again) == any(skipped) == bool(methods)


@pytest.mark.parametrize("mode", ["Engine", "Fixed"])
def test_with_another_step_budget(mode):
    budget = StepBudget(mode, 64 if mode == "Fixed" else None)
    assert fine(Trial(False, PolicyDocument("AccelGen", step_budget=budget, slo=MIXED)).run(load(50)))


@BASES
@pytest.mark.parametrize("policy", ["FCFS", "LARRY", "EconoServe"])
def test_step_budget_slo_goes_with_any_policy(asynchronous, policy):
    document = PolicyDocument(policy, step_budget=StepBudget("SLO"), slo=MIXED)
    assert fine(Trial(asynchronous, document).run(load(50)))


@BASES
def test_the_same_load_takes_the_same_course(asynchronous):
    form = Form(PolicyDocument("AccelGen", slo=MIXED), {"skipping": True})
    first, second = (Trial(asynchronous, form).run(load(50)) for _ in range(2))
    assert first.course == second.course


@BASES
def test_a_live_walk_through_all_policies_loses_nobody(asynchronous):
    documents = [
        PolicyDocument(policy, {}, StepBudget(mode), MIXED)
        for policy, mode in (
            ("FCFS", "Policy"),
            ("LARRY", "SLO"),
            ("EconoServe", "Policy"),
            ("AccelGen", "Policy"),
            ("EconoServe", "SLO"),
            ("AccelGen", "Engine"),
        )
    ]
    documents[4] = Form(documents[4], {"variant": "Full", "order": "ThreeKeys"})
    documents[5] = Form(documents[5], {"skipping": True, "selection": "NearestFit"})
    trial = Trial(asynchronous, documents[0])

    def switch():
        if trial.engine.steps % 30 == 0:
            trial.link.stage(documents[trial.engine.steps // 30 % len(documents)])

    trial.engine.before_step = switch
    assert fine(trial.run(load()))
