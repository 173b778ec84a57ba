"""The CRD on a real API server: it installs, fills defaults, and refuses bad specs with words that help."""

import pytest
from op_kube import llmservice, ok

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]

ENGINE = {"image": "example/vllm:1"}
# (what to replace in a valid spec, what the refusal must say: the field and the fix)
BAD = {
    "unknown policy": ({"scheduling": {"policy": "LARY"}}, ["spec.scheduling.policy", '"FCFS", "LARRY"']),
    "parameter above its bound": (
        {"scheduling": {"policy": "LARRY", "larry": {"alpha": 100_001}}},
        ["spec.scheduling.larry.alpha", "less than or equal to 100000"],
    ),
    "parameter below its bound": ({"scheduling": {"larry": {"alpha": -1}}}, ["spec.scheduling.larry.alpha"]),
    "unknown parameter": (
        {"scheduling": {"larry": {"beta": 1}}},
        ["spec.scheduling.larry.beta", "unknown field"],
    ),
    "fixed budget without tokens": (
        {"scheduling": {"stepBudget": {"mode": "Fixed"}}},
        ["spec.scheduling.stepBudget", "needs stepBudget.tokens"],
    ),
    "first token after the last": (
        {"slo": {"ttft": "2m", "jct": "30s"}},
        ["spec.slo", "ttft must not exceed slo.jct"],
    ),
    "gap longer than the job": (
        {"slo": {"tbt": "1h", "jct": "30s"}},
        ["spec.slo", "tbt must not exceed slo.jct"],
    ),
    "two targets for JCT": (
        {"slo": {"jct": "30s", "jctScalePercent": 200}},
        ["spec.slo", "exclude each other"],
    ),
    "faster than alone": ({"slo": {"jctScalePercent": 99}}, ["spec.slo.jctScalePercent", "100"]),
    "unknown predictor": (
        {"prediction": {"predictor": "Guess"}},
        ["spec.prediction.predictor", '"Quantile"'],
    ),
    "no percentile": ({"prediction": {"quantilePercent": 100}}, ["spec.prediction.quantilePercent", "99"]),
    "no time between tokens": ({"slo": {"tbt": "0s"}}, ["spec.slo.tbt", "such as 500ms"]),
    "not a duration": ({"slo": {"ttft": "fast"}}, ["spec.slo.ttft", "such as 500ms"]),
    "unknown source": ({"model": {"source": "s3://bucket/x"}}, ["spec.model.source", "hf://", "pvc://"]),
    "path that climbs": ({"model": {"source": "pvc://claim/../x"}}, ["spec.model.source", "pvc://"]),
    "hub options on a claim": (
        {"model": {"source": "pvc://claim/x", "revision": "main"}},
        ["spec.model", "hf:// sources"],
    ),
    "reserved argument": (
        {"engine": {**ENGINE, "args": ["--model=x"]}},
        ["spec.engine.args", "spec.model.source"],
    ),
    "reserved argument, two words": (
        {"engine": {**ENGINE, "args": ["--max-model-len", "7"]}},
        ["spec.engine.args", "spec.engine.maxModelLen"],
    ),
    "reserved argument, underscores": (
        {"engine": {**ENGINE, "args": ["--scheduler_cls=x"]}},
        ["spec.engine.args", "spec.scheduling.policy"],
    ),
    "reserved argument, shortened": (
        {"engine": {**ENGINE, "args": ["--scheduler-cl=x"]}},
        ["spec.engine.args", "spec.scheduling.policy"],
    ),
    "end of options": ({"engine": {**ENGINE, "args": ["--"]}}, ["spec.engine.args", "write options only"]),
    "reserved argument, short": (
        {"engine": {**ENGINE, "args": ["-tp", "2"]}},
        ["spec.engine.tensorParallelSize"],
    ),
    "reserved variable": (
        {"engine": {**ENGINE, "env": [{"name": "HF_TOKEN", "value": "x"}]}},
        ["spec.engine.env", "spec.model.tokenSecretRef"],
    ),
    "variable with two sources": (
        {"engine": {**ENGINE, "env": [{"name": "A"}]}},
        ["spec.engine.env", "exactly one of value and valueFrom"],
    ),
    "no image": ({"engine": {}}, ["spec.engine.image"]),
    "negative replicas": ({"replicas": -1}, ["spec.replicas"]),
    "unknown balancer": ({"routing": {"balancer": "Best"}}, ["spec.routing.balancer", "LeastRequest"]),
    "rollout that cannot move": (
        {"disruption": {"maxUnavailable": 0, "maxSurge": 0}},
        ["spec.disruption", "maxUnavailable or maxSurge above 0"],
    ),
    "service account": (
        {"podTemplate": {"serviceAccountName": "x"}},
        ["spec.podTemplate.serviceAccountName"],
    ),
    "privilege": (
        {"podTemplate": {"securityContext": {"privileged": True}}},
        ["spec.podTemplate.securityContext.privileged"],
    ),
    "projected volume": (
        {"podTemplate": {"volumes": [{"name": "a", "projected": {}}]}},
        ["spec.podTemplate.volumes", "projected"],
    ),
    "operator's volume": (
        {"podTemplate": {"volumes": [{"name": "shm", "emptyDir": {}}]}},
        ["spec.podTemplate.volumes", "belong to the operator"],
    ),
    "operator's path": (
        {
            "podTemplate": {
                "volumes": [{"name": "a", "emptyDir": {}}],
                "volumeMounts": [{"name": "a", "mountPath": "/headrace/plugin"}],
            }
        },
        ["spec.podTemplate.volumeMounts", "mount elsewhere"],
    ),
    "mount without volume": (
        {"podTemplate": {"volumeMounts": [{"name": "a", "mountPath": "/a"}]}},
        ["spec.podTemplate", "must name a volume"],
    ),
    "operator's label": (
        {"podTemplate": {"metadata": {"labels": {"headrace.dev/service": "other"}}}},
        ["spec.podTemplate.metadata.labels", "belong to the operator"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_spec_is_refused_with_field_and_fix(kube, case):
    change, words = BAD[case]
    answer = kube.create("llmservices", llmservice(**change))
    assert answer.status_code in {400, 422}, answer.text
    message = answer.json()["message"]
    assert all(word in message for word in words), message


@pytest.mark.parametrize("name", ["1st", "a" * 51, "a.b"])
def test_name_that_makes_no_service_is_refused(kube, name):
    answer = kube.create("llmservices", llmservice(name))
    assert answer.status_code == 422
    assert "DNS label of at most 50" in answer.text


def test_defaults_are_filled_by_the_api_server(kube):
    body = {key: value for key, value in llmservice().items() if key != "spec"}
    minimal = {"model": {"source": "hf://org/name"}, "engine": ENGINE}
    spec = ok(kube.create("llmservices", {**body, "spec": minimal}))["spec"]
    assert "replicas" not in spec
    assert spec["scheduling"] == {"policy": "FCFS", "stepBudget": {"mode": "Policy"}}
    assert spec["slo"] == {"perRequest": {"enabled": False}}
    assert spec["prediction"] == {"predictor": "Quantile", "quantilePercent": 50}
    assert spec["disruption"] == {"maxUnavailable": 1, "maxSurge": 0, "drainTimeout": "5m"}
    assert spec["routing"] == {
        "balancer": "SAL",
        "sal": {"kvRelease": "Net"},
        "access": {},
        "limits": {},
    }
    assert spec["accelerator"]["type"] == "GPU"


def test_patch_of_the_policy_alone_works_both_ways(kube):
    ok(kube.create("llmservices", llmservice()))
    for policy in ("LARRY", "FCFS"):
        body = ok(kube.patch("llmservices", "chat", {"spec": {"scheduling": {"policy": policy}}}))
        assert body["spec"]["scheduling"]["larry"]["alpha"] == 10


def test_arguments_that_headrace_leaves_alone_are_taken(kube):
    free = ["--max-num-seqs", "4", "--enforce-eager", "-O3", "--kv-cache-dtype=auto", "-", "", "-1"]
    ok(kube.create("llmservices", llmservice(engine={**ENGINE, "args": free})))


def test_everything_allowed_in_a_pod_template_is_taken(kube):
    template = {
        "metadata": {"labels": {"team": "a"}, "annotations": {"example.com/x": "y"}},
        "nodeSelector": {"gpu": "h100"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "registry"}],
        "resources": {"requests": {"cpu": 2, "memory": "8Gi"}, "limits": {"memory": "16Gi"}},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": True, "fsGroup": 1000},
    }
    body = ok(kube.create("llmservices", llmservice(podTemplate=template)))
    assert body["spec"]["podTemplate"]["affinity"] == {"nodeAffinity": {}}
