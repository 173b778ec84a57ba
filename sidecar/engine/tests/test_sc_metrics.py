"""What Prometheus and the operator are told, and that docs/metrics.md lists it."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from sc_fake_engine import FakeEngine, finished

from headrace_engine.contracts import PolicyDocument
from headrace_engine.control.paths import policy_path, stats_paths, turn_group_path
from headrace_engine.control.policy_file import write_policy
from headrace_engine.control.records import ErrorCode, PredictorCode, TurnCode
from headrace_engine.policies import registry as policies
from headrace_sidecar.file_handover import FileHandover
from headrace_sidecar.handover import Handover
from headrace_sidecar.metrics import EngineMetrics, RequestMetrics
from headrace_sidecar.monitor import Monitor
from headrace_sidecar.server import DECIDED_AFTER, Sidecar, engine_status


class Rig:
    """Monitor, handover and metrics around the folder `root`, looked at by hand."""

    def __init__(self, root):
        self.registry = CollectorRegistry()
        self.source = root / "policy.json"
        self.handover = Handover(self.source, policy_path(root), policies.validate_document)
        self.turn_group = FileHandover(self.source.parent / "turn-group.json", turn_group_path(root))
        requests = RequestMetrics(self.registry)
        self.monitor = Monitor(
            stats_paths(root), lambda batch: requests.add(batch) if self.monitor.observed else None
        )
        self.registry.register(EngineMetrics(self.monitor, self.handover))

    def observe(self):
        self.handover.hand_over_new(1.0)
        self.monitor.observe(1.0)

    def value(self, name, **labels):
        return self.registry.get_sample_value(f"headrace_{name}", labels)


@pytest.fixture
def engine(tmp_path):
    engine = FakeEngine(tmp_path)
    yield engine
    engine.close()


@pytest.fixture
def rig(tmp_path, engine):
    made = Rig(tmp_path)
    made.monitor.observe(0.5)
    return made


def test_finished_requests_fill_the_histograms(rig, engine):
    for e2e in (0.4, 1.2, 400.0):
        engine.finished.append(finished(e2e=e2e))
    rig.observe()
    assert rig.value("request_e2e_seconds_count") == 3
    assert rig.value("request_e2e_seconds_sum") == pytest.approx(401.6)
    assert rig.value("request_e2e_seconds_bucket", le="0.5") == 1
    assert rig.value("request_e2e_seconds_bucket", le="600.0") == 3
    assert rig.value("request_ttft_seconds_sum") == pytest.approx(0.75)
    assert rig.value("request_tpot_seconds_sum") == pytest.approx(0.12)
    assert rig.value("request_max_itl_seconds_sum") == pytest.approx(0.45)
    assert rig.value("request_queue_seconds_sum") == pytest.approx(0.09)
    assert rig.value("request_prompt_tokens_sum") == 900
    assert rig.value("request_output_tokens_sum") == 60


def test_slo_attainment_counts_each_target_and_all(rig, engine):
    engine.finished.append(finished(targets=7, met=5))
    engine.finished.append(finished(targets=3, met=3, overridden=1, impossible=0))
    engine.finished.append(finished(targets=0, met=0))
    rig.observe()

    def told(target, met):
        setters = ("Service", "Client")
        return sum(rig.value("slo_requests_total", target=target, met=met, set_by=s) for s in setters)

    counts = {
        (target, met): told(target, met)
        for target in ("TTFT", "TPOT", "E2E", "All")
        for met in ("true", "false")
    }
    assert counts == {
        ("TTFT", "true"): 2,
        ("TTFT", "false"): 0,
        ("TPOT", "true"): 1,
        ("TPOT", "false"): 1,
        ("E2E", "true"): 1,
        ("E2E", "false"): 0,
        ("All", "true"): 1,
        ("All", "false"): 1,
    }
    assert rig.value("slo_requests_total", target="TTFT", met="true", set_by="Client") == 1
    assert rig.value("slo_requests_total", target="E2E", met="true", set_by="Client") == 0
    assert rig.value("itl_violations_total") == 6


def test_targets_that_no_engine_could_meet_are_counted(rig, engine):
    engine.finished.append(finished(impossible=4))
    engine.finished.append(finished(impossible=5))
    rig.observe()
    told = {
        target: rig.value("slo_impossible_requests_total", target=target)
        for target in ("TTFT", "TPOT", "E2E")
    }
    assert told == {"TTFT": 1, "TPOT": 0, "E2E": 2}


def test_predictions_are_told_by_how_far_off_they_were(rig, engine):
    engine.finished.append(finished(output_tokens=20, predicted_tokens=10.0))
    engine.finished.append(finished(output_tokens=20, predicted_tokens=60.0))
    engine.finished.append(finished(output_tokens=20, predicted_tokens=0.0))
    engine.report(
        predictor=PredictorCode.GIVEN_UP, prediction_failures=20, predictions_learned=7, ignored_overrides=3
    )
    rig.observe()
    assert rig.value("prediction_ratio_bucket", le="0.5") == 1
    assert rig.value("prediction_ratio_count") == 2
    assert rig.value("predictor_info", predictor="GivenUp") == 1
    assert rig.value("prediction_failures_total") == 20
    assert rig.value("predictions_learned_total") == 7
    assert rig.value("ignored_overrides_total") == 3


def test_turns_are_told_with_whether_the_engine_is_in_turns_at_all(rig, engine):
    engine.report(turn_code=TurnCode.ALONE, turns=12, turn_wait_seconds=0.75)
    rig.observe()
    states = {state: rig.value("turn_state", state=state) for state in ("None", "InTurns", "Alone")}
    assert states == {"None": 0, "InTurns": 0, "Alone": 1}
    assert rig.value("turns_total") == 12
    assert rig.value("turn_wait_seconds_total") == 0.75


def test_a_policys_inner_state_is_told_by_its_names(rig, engine, monkeypatch):
    monkeypatch.setattr(policies.POLICIES["LARRY"], "GAUGES", {"one": "…", "two": "…"}, raising=False)
    write_policy(rig.source, PolicyDocument(policy="LARRY").sealed())
    rig.observe()
    engine.apply()
    engine.report(gauge_1=5.0, gauge_2=7.0, gauge_3=9.0, step_tokens=300, skipped=2)
    rig.observe()
    assert rig.value("policy_state", policy="LARRY", what="two") == 7
    assert rig.value("policy_state", policy="LARRY", what="one") == 5
    assert rig.value("step_budget_tokens") == 300
    assert rig.value("skipped_requests") == 2


def test_a_request_of_one_token_has_no_time_between_tokens(rig, engine):
    engine.finished.append(finished(output_tokens=1, tpot=0, max_itl=0))
    rig.observe()
    assert rig.value("request_tpot_seconds_count") == 0
    assert rig.value("request_ttft_seconds_count") == 1


def test_gauges_and_counters_follow_the_board(rig, engine):
    engine.report(
        running=3, waiting=2, free_kv_blocks=30, waiting_prefill_tokens=70, unfinished_prefill_tokens=7
    )
    engine.report(preemptions=4, fallback_steps=1, arrivals=9, arrived_tokens=99, finishes=4, step=11)
    rig.observe()
    assert rig.value("requests", state="running") == 3
    assert rig.value("requests", state="waiting") == 2
    assert rig.value("kv_blocks", state="free") == 30
    assert rig.value("kv_blocks", state="used") == 70
    assert rig.value("prefill_tokens", state="waiting") == 70
    assert rig.value("prefill_tokens", state="running") == 7
    assert rig.value("preemptions_total") == 4
    assert rig.value("policy_fallback_steps_total") == 1
    assert rig.value("requests_arrived_total") == 9
    assert rig.value("requests_left_total") == 4
    assert rig.value("steps_total") == 11
    assert rig.value("engine_state", state="Running") == 1
    assert sum(rig.value("engine_state", state=s) for s in ("Starting", "Idle", "Hung", "Stock", "Gone")) == 0
    assert rig.value("engine_info", vllm_version="0.32.0", boot=engine.board.boot) == 1


def test_the_policy_in_force_is_told(rig, engine):
    document = PolicyDocument(policy="LARRY").sealed()
    write_policy(rig.source, document)
    engine.report()
    rig.observe()
    assert rig.value("policy_info", policy="LARRY", hash=document.hash) is None
    engine.apply()
    rig.observe()
    assert rig.value("policy_info", policy="LARRY", hash=document.hash) == 1
    assert rig.value("policy_refused") == 0
    rig.source.write_text("{")
    engine.report(disabled=True)
    rig.observe()
    assert rig.value("policy_info", policy="LARRY", hash=document.hash) == 1
    assert rig.value("policy_refused") == 1
    assert rig.value("policy_disabled") == 1


def test_an_older_error_is_not_held_against_a_new_document(rig, engine):
    sidecar = Sidecar(rig.monitor, rig.handover, rig.turn_group, None, None, None, rig.registry, lambda: True)
    engine.report(error_code=ErrorCode.PARAMETERS)
    document = PolicyDocument(policy="LARRY").sealed()
    write_policy(rig.source, document)
    rig.observe()
    given_at = rig.handover.given_at
    assert engine_status(sidecar, given_at + DECIDED_AFTER - 0.1).policy.rejected_hash == ""
    assert engine_status(sidecar, given_at + DECIDED_AFTER).policy.rejected_hash == document.hash
    engine.report(error_code=ErrorCode.RAISED)
    rig.observe()
    policy = engine_status(sidecar, given_at + 60).policy
    assert (policy.rejected_hash, policy.error) == (
        "",
        "the policy raised an exception; see the engine's log",
    )


def test_what_was_there_before_a_sidecar_started_again_is_not_counted_again(rig, engine, tmp_path):
    engine.finished.append(finished())
    engine.report(arrivals=10, step=1000)
    rig.observe()
    assert rig.value("request_e2e_seconds_count") == 1
    again = Rig(tmp_path)
    again.observe()
    assert again.value("request_e2e_seconds_count") == 0
    assert again.value("requests_arrived_total") == 0
    engine.finished.append(finished())
    engine.report(arrivals=12)
    again.observe()
    assert again.value("request_e2e_seconds_count") == 1
    assert again.value("requests_arrived_total") == 2


def test_lost_records_are_told(rig, engine):
    for _ in range(70):
        engine.finished.append(finished())
    rig.observe()
    assert rig.value("lost_records_total", ring="finished") == 6
    assert rig.value("lost_records_total", ring="steps") == 0


def test_the_exposition_is_well_formed(rig, engine):
    engine.report()
    engine.finished.append(finished())
    rig.observe()
    families = list(text_string_to_metric_families(generate_latest(rig.registry).decode()))
    assert all(family.name.startswith("headrace_") and family.documentation for family in families)
    assert len({family.name for family in families}) == len(families) > 20


def test_the_documentation_lists_every_metric(rig):
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    for family in rig.registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"| `{name}` | {family.type} |" in page, "run: make generate"
