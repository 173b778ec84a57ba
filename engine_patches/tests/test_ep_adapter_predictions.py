"""Targets, predictions and the live cost on the real scheduler: seen by policies, told by telemetry."""

import pytest
from ep_adapter_trial import MARKS, Trial
from ep_sim import Line, load, settings

from headrace_engine.adapter.targets import read_overrides
from headrace_engine.contracts import PerRequest, PolicyDocument, Prediction, Slo
from headrace_engine.control.records import PredictorCode, Target
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.engine_view import Targets

pytestmark = MARKS
OPEN = Slo(ttft_ms=60_000, tpot_ms=1, per_request=PerRequest(tpot_ms=1))


class Curious:
    """FCFS that notes what it is shown."""

    def __init__(self):
        self.seen, self.costs, self.ended = {}, [], {}

    def budget(self, view):
        self.costs.append(view.cost)
        for request in [*view.waiting, *view.running]:
            now = (view.targets(request), view.predicted_output(request))
            first = self.seen.setdefault(request.request_id, now)
            assert now[0] == first[0]
            assert request.num_output_tokens < now[1] <= view.most_output(request)
        return view.limits.max_step_tokens

    def ended_with(self, request, predicted):
        self.ended[request.request_id] = (request.num_output_tokens, predicted)


def curious(slo=OPEN, **extra):
    from headrace_engine.sim.engine import Foresight, SimulatedEngine

    parts = Curious()
    policy = Policy(step_budget=parts.budget, observer=parts.ended_with)
    engine = SimulatedEngine(settings(), Line(), lambda _: policy, foresight=Foresight(slo=slo, **extra))
    return engine, parts


def serve(engine, arrivals):
    from headrace_engine.sim import run

    run.serve(engine, arrivals)
    assert not any(outcome.lost for outcome in engine.outcomes)
    assert engine.scheduler._guard.fallback_steps == 0
    assert not engine.scheduler._tracker._live


def test_a_policy_sees_predictions_that_learn_and_ends():
    engine, parts = curious()
    arrivals = load(60)
    serve(engine, arrivals)
    assert {name: ended[0] for name, ended in parts.ended.items()} == {
        str(number): arrival.output_tokens for number, arrival in enumerate(arrivals)
    }
    assert engine.scheduler._tracker.learned == 60
    assert len({predicted for _, predicted in parts.seen.values()}) > 5


def test_the_live_cost_comes_to_be_that_of_the_engine():
    engine, parts = curious()
    serve(engine, load(60))
    assert parts.costs[0] is None
    assert parts.costs[-1].fixed == pytest.approx(0.005, rel=0.01)
    assert parts.costs[-1].per_prefill == pytest.approx(0.00005, rel=0.01)
    cost = Line()
    known, told = curious(cost=cost)
    serve(known, load(10))
    assert set(map(id, told.costs)) == {id(cost)}


def test_clients_get_what_the_service_allows():
    from dataclasses import replace

    engine, parts = curious()
    plain, asking = load(2)
    serve(engine, [plain, replace(asking, targets=Targets(9.0, 0.5, 3.0), hint=150)])
    assert parts.seen["0"][0] == Targets(60.0, 0.001)
    assert parts.seen["1"] == (Targets(60.0, 0.5), 150.0)
    assert engine.scheduler._tracker.ignored_overrides == 1  # E2E: the service has none


def test_records_and_board_tell_of_targets_and_predictions():
    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    document = PolicyDocument("FCFS", slo=OPEN, prediction=Prediction("None"))
    trial = Trial(False, document)
    request = make_request("r~headrace~70000~~~~", 40, 20, START)
    plain = make_request("p", 40, 20, START)
    trial.run([request, plain])
    overridden = {record.overridden: record for record in trial.link.requests}
    assert set(overridden) == {0, int(Target.TTFT)}
    for record in overridden.values():
        assert (record.targets, record.met) == (Target.TTFT | Target.TPOT, Target.TTFT)
        assert record.predicted_tokens == 20  # as many as it may produce
    trial.scheduler.schedule()
    board = trial.link.board
    assert (board.predictor, board.predictions_learned, board.prediction_failures) == (
        PredictorCode.MEAN,
        2,
        0,
    )
    assert board.step_tokens == 512


def test_a_responses_body_brings_its_overrides_to_the_scheduler():
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    body = {"model": "chat", "input": "Hello", "vllm_xargs": {"headrace_ttft_ms": 250}}
    sampling = ResponsesRequest(**body).to_sampling_params(16, {})
    overrides = read_overrides("resp_1", sampling.extra_args, Slo(per_request=PerRequest(ttft_ms=1)))
    assert overrides.targets == Targets(ttft=0.25)
