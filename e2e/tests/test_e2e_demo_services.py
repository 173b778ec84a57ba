"""When a service counts as serving, what is said while it does not, and the sample services' own files."""

import contextlib
import copy
import sys
import time
import types

import pytest

from e2e.demo import __main__ as demo
from e2e.demo import services
from e2e.demo.kube import TooLateError, Watch
from e2e.demo.metrics import Sample, Targets
from e2e.demo.steps import Steps
from e2e.demo.target import SAMPLES, SettingError, connect


def service(**changes):
    conditions = [
        {"type": kind, "status": "True", "reason": "Fine", "observedGeneration": 3}
        for kind in ("Accepted", "Ready", "PolicyApplied", "RoutingReady")
    ]
    status = {"readyReplicas": 2, "conditions": conditions, "policy": {"name": "FCFS", "appliedReplicas": 2}}
    return {"metadata": {"generation": 3}, "spec": {"replicas": 2}, "status": status | changes}


def test_a_complete_service_serves():
    assert services.serves(service())
    assert services.describe(service()) == "2/2 ready, FCFS on 2"


@pytest.mark.parametrize("kind", ["Ready", "PolicyApplied", "RoutingReady"])
@pytest.mark.parametrize("change", [{"status": "False"}, {"observedGeneration": 2}])
def test_each_condition_must_hold_for_this_generation(kind, change):
    broken = copy.deepcopy(service())
    next(c for c in broken["status"]["conditions"] if c["type"] == kind).update(change)
    assert not services.serves(broken)


def test_replicas_left_to_an_autoscaler_count_as_one():
    unset = service(readyReplicas=1, policy={"name": "FCFS", "appliedReplicas": 1})
    unset["spec"] = {}
    assert services.serves(unset)
    assert services.describe(unset) == "1/1 ready, FCFS on 1"


def test_every_replica_counts():
    assert not services.serves(service(readyReplicas=1))
    assert not services.serves(service(policy={"appliedReplicas": 1}))


def test_what_is_wrong_is_said_in_the_operators_words():
    loading = service(readyReplicas=0)
    loading["status"]["conditions"][1].update(status="False", reason="Loading", message="vLLM loads")
    assert "0/2 ready" in services.describe(loading)
    assert "Ready=False/Loading: vLLM loads" in services.describe(loading)


def test_a_service_without_status_is_described():
    assert services.describe({"metadata": {"generation": 1}, "spec": {"replicas": 1}}).startswith("0/1 ready")


def test_restarts_and_replaced_pods_count():
    assert services.restarted({"a": 0, "b": 1}, {"a": 0, "b": 1, "new": 0}) == 0
    assert services.restarted({"a": 0, "b": 1}, {"a": 2}) == 3


def test_sample_targets_are_read_in_seconds():
    read = services.targets({"x": {"spec": {"slo": {"ttft": "500ms", "e2e": "10s"}}}, "y": {"spec": {}}})
    assert read == {"x": Targets(ttft=0.5, e2e=10), "y": Targets()}


def test_samples_are_chat_and_code():
    samples = services.load(SAMPLES)
    assert {name: manifest["spec"]["replicas"] for name, manifest in samples.items()} == {
        "chat": 2,
        "code": 1,
    }
    assert all(m["metadata"]["namespace"] == services.NAMESPACE for m in samples.values())


@pytest.mark.parametrize(("arguments", "kept"), [([], 0), (["--keep"], 1)])
def test_the_demo_leaves_the_repository_as_it_is_unless_told_to_keep_its_figures(
    monkeypatch, tmp_path, arguments, kept
):
    written = []
    monkeypatch.setattr(demo.results, "write", lambda *told, **_: written.append(told) or SAMPLES)
    monkeypatch.setattr(demo, "cache", lambda: tmp_path)
    target = types.SimpleNamespace(samples=SAMPLES, engine_image="", reopen="")
    monkeypatch.setattr(demo.deploy, "cluster", lambda _: target)
    monkeypatch.setattr(demo, "_on", lambda *_: {"failed": 0})
    monkeypatch.setattr(sys, "argv", ["demo", *arguments])
    assert demo.main() == 0
    assert len(written) == kept


def test_on_the_users_cluster_the_end_is_theirs_and_no_figure_is_kept(monkeypatch, capsys):
    written = []
    monkeypatch.setattr(demo.results, "write", lambda *arguments, **_: written.append(arguments))
    target = connect({"CLUSTER": "current", "REGISTRY": "r", "TAG": "1", "SAMPLES": str(SAMPLES)})
    demo._invite(target, "http://127.0.0.1:5", Steps())
    demo._conclude(1.0, True, Steps(), {"failed": 0}, keep=not target.reopen)
    said = capsys.readouterr().out
    assert "make down" not in said
    assert "helm uninstall headrace --namespace headrace-system" in said
    assert "port-forward -n headrace-system service/headrace-gateway 8080:80" in said
    assert "curl http://127.0.0.1:8080/v1/completions" in said
    assert written == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"CLUSTER": "curent"}, "CLUSTER=curent"), ({"CLUSTER": "current", "TAG": "1"}, "REGISTRY, SAMPLES")],
)
def test_a_wrong_setting_is_named(settings, said):
    with pytest.raises(SettingError, match=said):
        connect(settings)


class Cluster:
    """Takes a patch; the service's versions come at these times on the monotonic clock."""

    def __init__(self, *versions):
        self.versions = versions
        self.patches = []

    @contextlib.contextmanager
    def watch(self, *_what):
        watch = Watch("llmservice headrace-demo/chat")
        for version in self.versions:
            watch._versions.put(version)
        yield watch

    def patch(self, _namespace, _kind, name, change):
        self.patches.append((name, change))
        return {"metadata": {"generation": 4}}


def test_a_change_counts_from_the_patch_and_from_its_acceptance():
    before, applied = service(), service()
    accepted = copy.deepcopy(before)
    accepted["metadata"]["generation"] = applied["metadata"]["generation"] = 4
    for each in applied["status"]["conditions"]:
        each["observedGeneration"] = 4
    start = time.monotonic()
    late = Cluster((start, before), (start + 10, accepted))
    with pytest.raises(TooLateError):
        services.schedule(late, "chat", {"policy": "EconoServe"}, timeout=0)
    assert late.patches == [("chat", {"spec": {"scheduling": {"policy": "EconoServe"}}})]
    in_time = Cluster(*late.versions, (start + 12, applied))
    change = services.schedule(in_time, "chat", {"policy": "EconoServe"}, timeout=0)
    assert change.applied == pytest.approx(2)
    assert 11 < change.total <= 12
    at_once = Cluster((start + 10, applied))
    assert services.schedule(at_once, "chat", {"policy": "EconoServe"}, timeout=0).applied == 0


def test_what_the_walk_took_is_kept_and_what_it_cost_is_told(monkeypatch, capsys):
    written = {}
    monkeypatch.setattr(demo.results, "write", lambda *told, **_: written.update(told[2]) or SAMPLES)
    monkeypatch.setattr(demo, "REPOSITORY", SAMPLES)
    samples = [Sample("chat", 1.0, ttft=0.1), Sample("code", 2.0, error="HTTP 503")]
    changes = {
        "LARRY": {"chat": services.Change(1.2, 0.6), "code": services.Change(1.1, 0.7)},
        "AccelGen": {"chat": services.Change(0.9, 0.41), "code": services.Change(0.8, 0.4)},
    }
    demo._report(samples, 0, Steps())
    demo._conclude(180.0, False, Steps(), demo._figures(samples, changes, 0), keep=True)
    said = capsys.readouterr().out
    assert "2 requests, 1 failed; 0 restarts" in said
    assert written == {
        "second_seconds": 180.0,
        "requests": 2,
        "failed": 1,
        "restarts": 0,
        "larry_applied_seconds": 0.7,
        "larry_with_kubectl_seconds": 1.2,
        "accelgen_applied_seconds": 0.41,
        "accelgen_with_kubectl_seconds": 0.9,
    }
