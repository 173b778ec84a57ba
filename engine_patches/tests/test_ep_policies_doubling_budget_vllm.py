"""DoublingBudget on the real vLLM scheduler, its KV cache too small for the load."""

from statistics import fmean

import pytest
from ep_adapter_trial import BASES, MARKS, Trial, load, long_tailed

from headrace_engine.contracts import PolicyDocument
from headrace_engine.control.records import ErrorCode
from headrace_engine.sim.form import Form

pytestmark = MARKS

FORMS = {
    "as it is": {},
    "always preempting": {"preemption": "Always"},
    "always preempting, one phase": {"preemption": "Always", "samePhase": True},
    "never preempting": {"preemption": "Never"},
}


@BASES
@pytest.mark.parametrize("methods", FORMS.values(), ids=FORMS)
def test_every_form_serves_everyone(asynchronous, methods):
    trial = Trial(asynchronous, Form(PolicyDocument("DoublingBudget"), methods)).run(load(120))
    board = trial.link.board
    assert (board.fallback_steps, board.error_code) == (0, ErrorCode.NONE)
    assert trial.engine.preemptions > 0


@BASES
def test_the_longest_make_room_for_the_others(asynchronous):
    """By order of arrival the short ones wait for the KV of the long."""
    ttft = {}
    for name in ("FCFS", "DoublingBudget"):
        trial = Trial(asynchronous, PolicyDocument(name), blocks=300).run(long_tailed())
        assert trial.link.board.fallback_steps == 0
        ttft[name] = fmean(record.ttft for record in trial.link.requests)
    assert ttft["DoublingBudget"] < 0.8 * ttft["FCFS"]
