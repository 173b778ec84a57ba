"""Slices on the real vLLM scheduler, its KV cache too small for the load."""

from dataclasses import replace
from statistics import fmean

import pytest
from ep_adapter_trial import BASES, MARKS, Trial, long_tailed, sharing

from headrace_engine.contracts import PolicyDocument, Slice
from headrace_engine.control.records import ErrorCode
from headrace_engine.policies import registry

pytestmark = MARKS

POLICIES = pytest.mark.parametrize("policy", registry.policy_names())
SLICE = Slice(64, 2000)


@BASES
@POLICIES
def test_every_policy_serves_everyone_by_slices(asynchronous, policy):
    trial = Trial(asynchronous, PolicyDocument(policy, slice=SLICE), caching=True).run(sharing(120))
    board = trial.link.board
    assert (board.fallback_steps, board.error_code) == (0, ErrorCode.NONE)
    assert trial.engine.preemptions > 0


@POLICIES
def test_short_answers_do_not_wait_for_the_kv_of_long_ones(policy):
    ttft = {}
    for name, its in (("whole", None), ("sliced", SLICE)):
        trial = Trial(True, PolicyDocument(policy, slice=its), blocks=300).run(long_tailed())
        assert trial.link.board.fallback_steps == 0
        ttft[name] = fmean(record.ttft for record in trial.link.requests)
    assert ttft["sliced"] < 0.8 * ttft["whole"]


@BASES
def test_slices_are_switched_on_and_off_under_load(asynchronous):
    trial = Trial(asynchronous, PolicyDocument("LARRY"), blocks=300)
    documents = [PolicyDocument("LARRY", slice=its) for its in (SLICE, None, replace(SLICE, tokens=16))]
    stepped, schedule = [0], trial.scheduler.schedule

    def switching(*args, **kwargs):
        stepped[0] += 1
        if stepped[0] % 40 == 0:
            trial.link.stage(documents[stepped[0] // 40 % 3])
        return schedule(*args, **kwargs)

    trial.scheduler.schedule = switching
    trial.run(long_tailed())
    assert stepped[0] > 400
    assert trial.link.board.fallback_steps == 0
