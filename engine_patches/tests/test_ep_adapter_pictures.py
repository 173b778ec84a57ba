"""Pictures on the real vLLM scheduler and its encoder cache: served by every policy, not taken for tokens.

The encoder itself takes a device; here a step takes longer by what it would.
"""

import random

import pytest
from ep_adapter_trial import BASES, MARKS, Trial
from test_ep_adapter_awkward import POLICIES

from headrace_engine.contracts import PolicyDocument, Slo, StepBudget
from headrace_engine.control.records import ErrorCode

pytestmark = MARKS
PICTURE = 150  # tokens
A_STEP, A_TOKEN, AN_EMBEDDING = 0.005, 0.00005, 0.001  # seconds


def seconds(output, embedding=AN_EMBEDDING):
    pictures = sum(map(len, output.scheduled_encoder_inputs.values()))
    return A_STEP + A_TOKEN * output.total_num_scheduled_tokens + embedding * PICTURE * pictures


def load(count=60, seed=9):
    """Half of the requests have up to three pictures, some of which others have too."""
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    rng, at, requests = random.Random(seed), START, []
    for number in range(count):
        at += rng.expovariate(15)
        pictures = rng.randrange(1, 4) if number % 2 else 0
        places = [PlaceholderRange(20 + each * (PICTURE + 10), PICTURE) for each in range(pictures)]
        features = [
            MultiModalFeatureSpec(
                data=None,
                modality="image",
                identifier=f"picture {rng.randrange(40)} {each}",
                mm_position=place,
            )
            for each, place in enumerate(places)
        ]
        prompt = 20 + pictures * (PICTURE + 10) + rng.randrange(300)
        requests.append(
            make_request(str(number), prompt, rng.randrange(2, 120), at, mm_features=features or None)
        )
    return requests


def seeing(asynchronous, document, blocks=256):
    """An engine whose encoder cache holds four pictures, and that encodes two in a step at most."""
    from vllm.v1.core.encoder_cache_manager import EncoderCacheManager

    trial = Trial(asynchronous, document, blocks=blocks)
    trial.engine.cost = seconds
    trial.scheduler.encoder_cache_manager = EncoderCacheManager(4 * PICTURE)
    trial.scheduler.max_num_encoder_input_tokens = 2 * PICTURE
    return trial


@BASES
@POLICIES
def test_everyone_is_served(asynchronous, document):
    trial = seeing(asynchronous, document).run(load())
    assert (trial.link.board.fallback_steps, trial.link.board.error_code) == (0, ErrorCode.NONE)


@BASES
def test_what_the_encoder_takes_is_not_taken_for_tokens(asynchronous):
    trial = seeing(asynchronous, PolicyDocument("FCFS", step_budget=StepBudget("SLO")), blocks=4096)
    trial.run(load(200))
    cost = trial.scheduler._step_timer.cost
    assert cost.per_prefill == pytest.approx(A_TOKEN, rel=0.05)
    assert cost.fixed == pytest.approx(A_STEP, rel=0.05)
    longest = A_STEP + 512 * A_TOKEN
    assert trial.link.steps
    assert all(step.seconds <= longest + 1e-6 for step in trial.link.steps)


@BASES
def test_how_long_the_encoder_takes_is_learned(asynchronous):
    trial = seeing(asynchronous, PolicyDocument("FCFS", step_budget=StepBudget("SLO")), blocks=4096)
    trial.run(load(200))
    assert trial.scheduler._step_timer.encoder_token == pytest.approx(AN_EMBEDDING, rel=0.05)


@BASES
@pytest.mark.parametrize("policy", ["FCFS", "AccelGen"])
def test_steps_leave_time_for_the_encoder(monkeypatch, asynchronous, policy):
    """Fewer of them overrun what the targets leave, and nobody misses one."""
    from headrace_engine.adapter.step_timer import StepTimer

    embedding, tpot = 0.00008, 0.025  # a picture takes 12 ms

    def overran(known):
        document = PolicyDocument(policy, step_budget=StepBudget("SLO"), slo=Slo(tpot_ms=1000 * tpot))
        trial, took = seeing(asynchronous, document, blocks=4096), []

        def timed(output):
            took.append((seconds(output, embedding), bool(output.scheduled_encoder_inputs)))
            return took[-1][0]

        trial.engine.cost = timed
        with monkeypatch.context() as patch:
            if not known:
                patch.setattr(StepTimer, "encoder_token", 0.0)
            trial.run(load(200))
        assert trial.link.board.fallback_steps == 0
        encoding = [each for each, encodes in took[len(took) // 4 :] if encodes]
        return sum(max(each - tpot, 0.0) for each in encoding) / len(encoding)

    with_it, without = overran(known=True), overran(known=False)
    assert with_it < 0.7 * without, (with_it, without)


@BASES
@POLICIES
def test_text_is_served_as_if_there_were_no_encoders(monkeypatch, asynchronous, document):
    """However long they take."""
    from ep_adapter_trial import load as texts

    from headrace_engine.adapter.step_timer import StepTimer

    slow = seeing(asynchronous, document)
    plain = seeing(asynchronous, document).run(texts(60))
    monkeypatch.setattr(StepTimer, "encoder_token", 10.0)
    assert slow.run(texts(60)).course == plain.course


@BASES
def test_a_look_at_the_encoders_that_fails_costs_no_request(monkeypatch, asynchronous):
    from headrace_engine.adapter.scheduler_view import SchedulerView

    def fail(*_):
        failed.append(1)
        raise ZeroDivisionError

    failed = []
    monkeypatch.setattr(SchedulerView, "encoder_tokens", fail)
    seeing(asynchronous, PolicyDocument("FCFS", step_budget=StepBudget("SLO"))).run(load())
    assert failed
