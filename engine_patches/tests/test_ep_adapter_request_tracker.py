"""What is predicted of requests, and that a predictor that fails costs only its predictions."""

import math
from types import SimpleNamespace

import pytest

from headrace_engine.adapter.request_tracker import CALL_SECONDS, FAILURES_IN_A_ROW, RequestTracker
from headrace_engine.adapter.step_timer import StepTimer
from headrace_engine.contracts import PerRequest, PolicyDocument, Prediction, Slo
from headrace_engine.control.records import PredictorCode, Target
from headrace_engine.cost.forms import Linear
from headrace_engine.cost.model import unloaded_seconds
from headrace_engine.policies.engine_view import EngineLimits, Targets
from headrace_engine.prediction.mean import UNKNOWN

LIMITS = EngineLimits(block_size=16, kv_groups=1, total_blocks=1000, max_step_tokens=2048, max_running=256)
COST = Linear(None, fixed=0.005, per_prefill=1e-5, per_decode=1e-4)


class Scripted:
    """Answers what it is told to; an exception is raised."""

    def __init__(self, answer=100.0, again=500.0):
        self.answer, self.again, self.learned, self.closed = answer, again, [], False

    def predict(self, features):
        return self._say(self.answer)

    def repredict(self, features, output_so_far):
        return self._say(self.again)

    def learn(self, features, output_tokens):
        self.learned.append((features.prompt_tokens, output_tokens))

    def close(self):
        self.closed = True

    @staticmethod
    def _say(answer):
        if isinstance(answer, Exception):
            raise answer
        return answer


class Rig:
    def __init__(self, predictor=None, slo=Slo(), cost=None, stopwatch=lambda: 0.0):  # noqa: B008
        self.built = []

        def build(prediction):
            self.built.append(prediction)
            if isinstance(predictor, Exception):
                raise predictor
            return predictor

        self.tracker = RequestTracker(
            StepTimer(cost), LIMITS, build, stopwatch, lambda request: request.max_tokens
        )
        self.tracker.install_document(PolicyDocument("FCFS", slo=slo).sealed())


class Request(SimpleNamespace):
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def request(prompt=100, output=0, most=1000, **overrides):
    return Request(
        request_id="r",
        num_prompt_tokens=prompt,
        num_output_tokens=output,
        num_computed_tokens=output,
        max_tokens=most,
        prompt_token_ids=[1] * prompt,
        block_hashes=[],
        sampling_params=SimpleNamespace(extra_args=overrides or None, stop=None),
    )


def test_a_prediction_holds_until_the_request_outgrows_it():
    predictor = Scripted(100.0, 500.0)
    tracker, one = Rig(predictor).tracker, request()
    assert tracker.predicted_output(one) == 100
    predictor.answer = 7.0
    one.num_output_tokens = 99
    assert tracker.predicted_output(one) == 100
    one.num_output_tokens = 100
    assert tracker.predicted_output(one) == 500
    assert tracker.find_request(one).first_prediction == 100


def test_what_a_request_is_about_to_outgrow_is_predicted_ahead():
    predictor = Scripted(100.0, 500.0)
    tracker, one = Rig(predictor).tracker, request()
    tracker.track_request(one)
    one.num_output_tokens = 98
    assert tracker.predict_ahead(one) == 100
    one.num_output_tokens = 99
    assert tracker.predict_ahead(one) == 500
    assert tracker.predicted_output(one) == 100
    predictor.again = 700.0
    assert tracker.predict_ahead(one) == 500
    one.num_output_tokens = 100
    assert tracker.predicted_output(one) == 500
    assert tracker.find_request(one).first_prediction == 100
    one.num_output_tokens = 499
    assert tracker.predict_ahead(one) == 700
    one.num_output_tokens = 998  # of 1000 at most
    assert tracker.predict_ahead(one) == 1000


def test_nothing_is_predicted_ahead_of_a_request_that_has_ended():
    tracker, one = Rig(Scripted()).tracker, request()
    tracker.track_request(one)
    tracker.forget_request(one)
    tracker.predict_ahead(one)
    assert not tracker._live


@pytest.mark.parametrize(("most", "output", "found"), [(50, 0, 50), (1, 0, 1), (50, 49, 50), (50, 50, 50)])
def test_no_prediction_exceeds_what_a_request_may_produce(most, output, found):
    assert Rig(Scripted(100.0)).tracker.predicted_output(request(most=most, output=output)) == found


def test_finished_requests_are_learned_and_forgotten():
    predictor = Scripted()
    tracker, one = Rig(predictor).tracker, request(prompt=30)
    tracker.track_request(one)
    one.num_output_tokens = 12
    tracker.learn_from_request(one)
    tracker.forget_request(one)
    assert tracker.learned == 1
    assert not tracker._live
    tracker.track_request(request())
    assert predictor.learned == [(30, 12)]


BAD = [ZeroDivisionError(), math.nan, math.inf, -3.0, "many", None]


@pytest.mark.parametrize("answer", BAD, ids=repr)
def test_a_predictor_that_fails_is_replaced_by_the_mean_and_counted(answer):
    tracker = Rig(Scripted(answer, answer)).tracker
    assert tracker.predicted_output(request()) == UNKNOWN
    grown = request(output=400)
    assert tracker.predicted_output(grown) == 800
    assert tracker.failures == 2


def test_a_prediction_that_is_behind_the_output_is_a_failure():
    tracker, one = Rig(Scripted(100.0, 100.0)).tracker, request()
    tracker.track_request(one)
    one.num_output_tokens = 300
    assert tracker.predicted_output(one) == 600
    assert tracker.failures == 1


def test_the_mean_is_that_of_finished_requests():
    tracker = Rig(RuntimeError()).tracker
    assert (tracker.failures, tracker.predictor_code) == (1, PredictorCode.MEAN)
    for tokens in (40, 60):
        done = request(output=tokens)
        tracker.learn_from_request(done)
        tracker.forget_request(done)
    assert tracker.predicted_output(request()) == pytest.approx(50, abs=1)


def test_a_predictor_that_keeps_failing_is_given_up_until_another_is_asked_for():
    rig = Rig(Scripted(ValueError()))
    for _ in range(FAILURES_IN_A_ROW + 5):
        rig.tracker.predicted_output(request())
    assert rig.tracker.failures == FAILURES_IN_A_ROW
    assert rig.tracker.predictor_code == PredictorCode.GIVEN_UP
    rig.tracker.install_document(PolicyDocument("FCFS", prediction=Prediction("Learned")).sealed())
    assert rig.tracker.predictor_code == PredictorCode.LEARNED


def test_a_predictor_that_is_too_slow_fails():
    ticks = iter(range(1000))
    rig = Rig(Scripted(100.0), stopwatch=lambda: next(ticks) * CALL_SECONDS * 1.01)
    assert rig.tracker.predicted_output(request()) == UNKNOWN
    assert rig.tracker.failures == 1


def test_what_was_learned_outlives_a_document_that_asks_for_the_same():
    predictor = Scripted()
    rig = Rig(predictor)
    rig.tracker.install_document(PolicyDocument("LARRY").sealed())
    assert len(rig.built) == 1
    assert not predictor.closed
    rig.tracker.install_document(PolicyDocument("LARRY", prediction=Prediction("None")).sealed())
    assert len(rig.built) == 2
    assert predictor.closed


def test_a_scaled_target_is_of_the_predicted_output_and_in_the_end_of_the_real_one():
    slo = Slo(e2e_scale_percent=200)
    tracker, one = Rig(Scripted(100.0), slo, COST).tracker, request()
    assert tracker.targets(one) == Targets(e2e=2 * unloaded_seconds(COST, 100, 100))
    targets, hopeless = tracker.assess_request(tracker.find_request(one), 40)
    assert targets == Targets(e2e=2 * unloaded_seconds(COST, 100, 40))
    assert hopeless == Target(0)


def test_targets_follow_a_new_document_only():
    rig = Rig(Scripted(), Slo(ttft_ms=500, per_request=PerRequest()))
    one, other = request(headrace_ttft_ms=900), request(headrace_ttft_ms="soon")
    assert rig.tracker.targets(one) == Targets(ttft=0.9)
    assert rig.tracker.targets(other) == Targets(ttft=0.5)
    assert rig.tracker.ignored_overrides == 1
    rig.tracker.install_document(PolicyDocument("FCFS", slo=Slo(tpot_ms=50)).sealed())
    assert rig.tracker.targets(one) == Targets(tpot=0.05)


def test_an_impossible_target_is_told():
    tracker = Rig(Scripted(), Slo(e2e_ms=1), COST).tracker
    targets, hopeless = tracker.assess_request(tracker.find_request(request()), 40)
    assert (targets, hopeless) == (Targets(e2e=0.001), Target.E2E)
