"""EconoServe on the real vLLM scheduler, its KV cache too small for the load: nobody lost, nothing leaked."""

import pytest
from ep_adapter_trial import BASES, MARKS, Trial, load

from headrace_engine.contracts import PolicyDocument, Slo, StepBudget
from headrace_engine.control.records import ErrorCode
from headrace_engine.sim.form import Form

pytestmark = MARKS

TIGHT, UNAIMED = Slo(e2e_scale_percent=200), Slo()
FORMS = {  # parameters, and methods
    "general": ({}, {}),
    "general, calibrated, no room kept": ({"reservedPercent": 0, "underPercent": 25}, {}),
    "the paper's": ({"paddingPercent": 15}, {"variant": "Full", "order": "ThreeKeys"}),
    "the paper's, lending all": ({}, {"variant": "Full", "bufferPercent": 0}),
    "SDO": ({"reservedPercent": 50, "underPercent": 25}, {"variant": "SDO"}),
    "SD": ({}, {"variant": "SD"}),
    "D": ({"reservedPercent": 0}, {"variant": "D"}),
}


def form(parameters, methods, slo=UNAIMED):
    document = PolicyDocument("EconoServe", parameters, slo=slo)
    return Form(document, methods) if methods else document


@BASES
@pytest.mark.parametrize(("parameters", "methods"), FORMS.values(), ids=FORMS)
def test_every_form_serves_everyone(asynchronous, parameters, methods):
    trial = Trial(asynchronous, form(parameters, methods, TIGHT)).run(load(50))
    assert trial.link.board.fallback_steps == 0
    assert trial.link.board.error_code == ErrorCode.NONE


def test_with_small_steps_and_no_target():
    document = PolicyDocument("EconoServe", step_budget=StepBudget("Fixed", 64))
    assert Trial(False, document).run(load(50)).link.board.fallback_steps == 0


def test_a_live_walk_through_all_forms_loses_nobody():
    trial = Trial(False, PolicyDocument("EconoServe"))
    forms = [form(*each) for each in FORMS.values()]

    def switch():
        if trial.engine.steps % 40 == 0:
            trial.link.stage(forms[trial.engine.steps // 40 % len(forms)])

    trial.engine.before_step = switch
    trial.run(load())
    assert trial.link.board.fallback_steps == 0


def test_preempts_less_than_stock_once_lengths_are_known():
    stock = Trial(False).run(load(120)).engine.preemptions
    document = PolicyDocument("EconoServe", {"patience": 0})
    assert 0 <= Trial(False, document).run(load(120)).engine.preemptions < stock
