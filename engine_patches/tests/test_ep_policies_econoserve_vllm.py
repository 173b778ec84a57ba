"""EconoServe on the real vLLM scheduler, its KV cache too small for the load: nobody lost, nothing leaked."""

import pytest
from ep_adapter_trial import BASES, MARKS, Trial, load

from headrace_engine.contracts import PolicyDocument, Slo, StepBudget
from headrace_engine.control.records import ErrorCode

pytestmark = MARKS

TIGHT = Slo(e2e_scale_percent=200)
FORMS = {
    "general": {},
    "general, calibrated, no room kept": {"reservedPercent": 0, "underPercent": 25},
    "the paper's": {"variant": "Full", "order": "ThreeKeys", "paddingPercent": 15},
    "the paper's, lending all": {"variant": "Full", "bufferPercent": 0},
    "SDO": {"variant": "SDO", "reservedPercent": 50, "underPercent": 25},
    "SD": {"variant": "SD"},
    "D": {"variant": "D", "reservedPercent": 0},
}


@BASES
@pytest.mark.parametrize("parameters", FORMS.values(), ids=FORMS)
def test_every_form_serves_everyone(asynchronous, parameters):
    trial = Trial(asynchronous, PolicyDocument("EconoServe", parameters, slo=TIGHT)).run(load(50))
    assert trial.link.board.fallback_steps == 0
    assert trial.link.board.error_code == ErrorCode.NONE


def test_with_small_steps_and_no_target():
    document = PolicyDocument("EconoServe", step_budget=StepBudget("Fixed", 64))
    assert Trial(False, document).run(load(50)).link.board.fallback_steps == 0


def test_a_live_walk_through_all_forms_loses_nobody():
    trial = Trial(False, PolicyDocument("EconoServe"))
    documents = [PolicyDocument("EconoServe", parameters) for parameters in FORMS.values()]

    def switch():
        if trial.engine.steps % 40 == 0:
            trial.link.stage(documents[trial.engine.steps // 40 % len(documents)])

    trial.engine.before_step = switch
    trial.run(load())
    assert trial.link.board.fallback_steps == 0


def test_preempts_less_than_stock_once_lengths_are_known():
    stock = Trial(False).run(load(120)).engine.preemptions
    document = PolicyDocument("EconoServe", {"patience": 0})
    assert 0 <= Trial(False, document).run(load(120)).engine.preemptions < stock
