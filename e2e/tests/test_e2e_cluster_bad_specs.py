"""Bad specs: each is refused, or told in a condition; either names the field and what to write instead.

Whatever is wrong, the pods that run go on serving the last good spec.
"""

import copy
import json

import pytest

from e2e.demo.kube import condition
from e2e.demo.services import NAMESPACE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]

REFUSED = {
    "unknown policy": ({"scheduling": {"policy": "SJF"}}, ["scheduling.policy", "FCFS", "LARRY"]),
    "parameter out of range": ({"scheduling": {"larry": {"alpha": -1}}}, ["scheduling.larry.alpha", "0"]),
    "budget without tokens": ({"scheduling": {"stepBudget": {"mode": "Fixed"}}}, ["stepBudget", "tokens"]),
    "first token after the last": ({"slo": {"ttft": "20s", "e2e": "10s"}}, ["slo.ttft", "slo.e2e"]),
    "no duration": ({"slo": {"ttft": "fast"}}, ["slo.ttft", "500ms"]),
    "unknown source": ({"model": {"source": "s3://bucket/model"}}, ["model.source", "hf://", "pvc://"]),
    "reserved argument": ({"engine": {"args": ["--port=1"]}}, ["engine.args", "--port"]),
    "scheduler of one's own": ({"engine": {"args": ["--scheduler-cls", "x.Y"]}}, ["spec.scheduling.policy"]),
    "unknown balancer": ({"routing": {"balancer": "Best"}}, ["routing.balancer", "SAL"]),
    "negative replicas": ({"replicas": -1}, ["replicas", "0"]),
}


def merged(base, change):
    result = copy.deepcopy(base)
    for key, value in change.items():
        result[key] = merged(result.get(key, {}), value) if isinstance(value, dict) else value
    return result


@pytest.mark.parametrize("case", REFUSED)
def test_the_api_server_refuses_and_names_the_field(headrace, refused, case):
    change, words = REFUSED[case]
    sample = headrace.samples["chat"]
    message = refused({**sample, "spec": merged(sample["spec"], change)})
    assert message, "accepted"
    for word in words:
        assert word in message


CONDITIONS = {
    "claim that is not there": (
        {"model": {"source": "pvc://no-such-claim/tiny"}},
        ("Ready", "False", "ModelClaimNotFound"),
        "no-such-claim",
    ),
    "device that no node has": (
        {"accelerator": {"type": "GPU"}},
        ("Ready", "False", "Unschedulable"),
        "nvidia.com/gpu",
    ),
    "folder of the node": (
        {"podTemplate": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}], "volumeMounts": []}},
        ("Accepted", "False", "HostPathNotAllowed"),
        "podTemplate.volumes",
    ),
}


@pytest.mark.parametrize("case", CONDITIONS)
def test_a_new_service_that_cannot_run_says_why(stage, case):
    change, (kind, status, reason), word = CONDITIONS[case]
    sample = stage.samples["code"]
    spec = merged(merged(sample["spec"], {"model": {"servedName": "bad"}}), change)
    stage.kube.apply({**sample, "metadata": {"name": "bad", "namespace": NAMESPACE}, "spec": spec})
    try:
        seen = stage.until(lambda: _with(stage, "bad", kind, reason), 180, f"{kind}={status}/{reason}")
        assert seen["status"] == status
        assert word in seen["message"]
    finally:
        _delete(stage, "bad")


def test_running_pods_keep_serving_when_their_spec_goes_bad(stage):
    before = stage.lives()
    sample = stage.samples["code"]
    bad = merged(sample["spec"], {"podTemplate": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}})
    bad["podTemplate"]["volumeMounts"] = []
    stage.kube.apply({**sample, "spec": bad})
    stage.until(lambda: _with(stage, "code", "Accepted", "HostPathNotAllowed"), 180, "Accepted=False")
    assert stage.complete("code").status_code == 200
    assert stage.lives() == before


def test_a_name_stays_with_the_service_that_had_it_first(stage):
    sample = stage.samples["code"]
    spec = merged(sample["spec"], {"model": {"servedName": "chat"}, "replicas": 0})
    stage.kube.apply({**sample, "metadata": {"name": "late", "namespace": NAMESPACE}, "spec": spec})
    try:
        seen = stage.until(
            lambda: _with(stage, "late", "Accepted", "ModelNameConflict"), 180, "conflict told"
        )
        assert "chat" in seen["message"]
        assert stage.complete("chat").status_code == 200
    finally:
        _delete(stage, "late")


def _delete(stage, name):
    """Delete a service, and wait for the end of its pods: another test may count what is there."""
    stage.kube("delete", "llmservice", name, "-n", NAMESPACE, "--wait=true")
    stage.until(lambda: not stage.pods(name), 180, f"the pods of {name} are gone")


def _with(stage, name, kind, reason):
    seen = condition(stage.service(name), kind)
    return seen if seen.get("reason") == reason else None


def test_an_unknown_field_is_not_swallowed(headrace):
    sample = headrace.samples["chat"]
    spec = {**sample["spec"], "replica": 3}
    manifest = json.dumps({**sample, "spec": spec})
    with pytest.raises(Exception, match="replica"):
        headrace.kube("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=manifest)
