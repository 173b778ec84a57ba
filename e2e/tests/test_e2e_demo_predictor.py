"""The demo's prediction: the service as the engines have it, served by the simulator."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.demo import predictor, services, workload
from e2e.demo.predictor import Learned, Predictor
from e2e.demo.target import SAMPLES
from headrace_engine.contracts import LoadReport, dumps, loads
from headrace_engine.cost.fit import read_cost
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.workloads.arrival import Arrival

GOLDEN = Path(__file__).parents[2] / "engine_patches" / "tests" / "golden"
REPORT = loads(LoadReport, (GOLDEN / "load_report.json").read_text())
COST = {"fixed": 0.02, "per_prefill": 1e-4, "per_work": 0.0, "per_decode": 1e-3, "per_context": 0.0}


def service(name):
    manifest = services.load(SAMPLES)[name]
    manifest["metadata"] |= {"uid": "u", "generation": 1}
    return manifest


def learned(name="code", blocks=77):
    return Learned(service(name), read_cost(COST), blocks)


class Sidecars:
    """kubectl for two pods, whose engines differ."""

    def items(self, _namespace, _kind, selector):
        assert selector == "headrace.dev/service=chat"
        return [{"metadata": {"name": f"chat-{number}"}} for number in (1, 2)]

    def get(self, _namespace, _kind, name):
        return service(name)

    def __call__(self, _get, _raw, place):
        number = 1 if "/chat-1:9400/" in place else 2
        if place.endswith("/cost"):
            return json.dumps({**COST, "fixed": 0.01 * number})
        return dumps(replace(REPORT, total_kv_blocks=80 - number))


def test_engines_tell_how_fast_they_are_and_what_they_hold():
    found = predictor.learn(Sidecars(), "chat")
    assert found.cost.fixed == pytest.approx(0.015)
    assert found.cost.per_prefill == COST["per_prefill"]
    assert found.kv_blocks == 79  # with the one that vLLM keeps
    assert found.service["metadata"]["name"] == "chat"


def test_the_world_is_the_services_own():
    world = predictor.make_world(learned(), [Arrival(0.0, 10, 5), Arrival(2.0, 10, 5)])
    settings = world.settings
    assert (settings.num_blocks, settings.block_size) == (77, 32)
    assert (settings.max_num_seqs, settings.max_num_batched_tokens) == (8, 256)
    assert not settings.async_scheduling  # on a CPU
    assert not settings.prefix_caching
    assert (world.cost, world.slo.ttft_ms, world.gateway.balancer) == (learned().cost, 1000, "SAL")


def test_the_policy_is_the_one_to_come():
    found = predictor.document(learned(), "AccelGen")
    assert (found.policy, found.step_budget.mode, found.slo.tpot_ms) == ("AccelGen", "SLO", 100)
    assert learned().service["spec"]["scheduling"]["policy"] == "FCFS"


def test_a_simulated_request_is_what_a_client_would_see():
    arrival = Arrival(3.0, 10, 5)
    outcome = Outcome(arrival, started_at=3.1, first_token_at=3.5, last_token_at=4.5, finished_at=4.5)
    seen = predictor.as_sample("code", outcome)
    assert (seen.sent, seen.ttft, seen.tpot, seen.e2e) == (3.0, 0.5, 0.25, 1.5)
    assert predictor.as_sample("code", Outcome(arrival)).error == "refused"


@pytest.mark.vllm
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default")
def test_where_requests_queue_larry_is_predicted_to_answer_sooner_and_nowhere_else(monkeypatch):
    monkeypatch.setattr(predictor, "SECONDS", 600.0)  # vLLM's import, on however busy a machine
    ratios = {}
    with Predictor() as simulator:
        for name, capacity in (("code", 5.0), ("chat", 3.0)):
            arrivals = workload.arrivals(name, capacity)
            first, larry = simulator.predict(learned(name), arrivals, ["FCFS", "LARRY"])
            assert len(first) == len(larry) == len(arrivals)
            assert not any(each.error for each in first + larry)
            ratios[name] = sum(each.ttft for each in larry) / sum(each.ttft for each in first)
    assert ratios["code"] < 0.7
    assert ratios["chat"] == pytest.approx(1.0, abs=0.05)
