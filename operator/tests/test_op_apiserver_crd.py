"""The CRD on a real API server: it installs, fills defaults, and refuses bad specs with words that help."""

import pytest
from op_kube import llmservice, ok

from headrace_operator.api import parse_service
from headrace_operator.errors import SpecInvalidError

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]

ENGINE = {"image": "example/vllm:1"}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
}
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
    "slice without a length": (
        {"scheduling": {"slice": {"patience": "5s"}}},
        ["spec.scheduling.slice.tokens", "Required"],
    ),
    "slice below any block": (
        {"scheduling": {"slice": {"tokens": 15}}},
        ["spec.scheduling.slice.tokens", "16"],
    ),
    "slice below the engine's block": (
        {"engine": {**ENGINE, "blockSize": 128}, "scheduling": {"slice": {"tokens": 127}}},
        ["spec.scheduling.slice.tokens", "must not be below engine.blockSize"],
    ),
    "slice longer than any request": (
        {"engine": {**ENGINE, "maxModelLen": 1024}, "scheduling": {"slice": {"tokens": 1025}}},
        ["spec.scheduling.slice.tokens", "must not exceed engine.maxModelLen"],
    ),
    "first token after the last": (
        {"slo": {"ttft": "2m", "e2e": "30s"}},
        ["spec.slo", "ttft must not exceed slo.e2e"],
    ),
    "gap longer than the job": (
        {"slo": {"tpot": "1h", "e2e": "30s"}},
        ["spec.slo", "tpot must not exceed slo.e2e"],
    ),
    "two targets for E2E": (
        {"slo": {"e2e": "30s", "e2eScalePercent": 200}},
        ["spec.slo", "exclude each other"],
    ),
    "faster than alone": ({"slo": {"e2eScalePercent": 99}}, ["spec.slo.e2eScalePercent", "100"]),
    "unknown predictor": (
        {"prediction": {"predictor": "Guess"}},
        ["spec.prediction.predictor", '"Quantile"'],
    ),
    "no percentile": ({"prediction": {"quantilePercent": 100}}, ["spec.prediction.quantilePercent", "99"]),
    "no time between tokens": ({"slo": {"tpot": "0s"}}, ["spec.slo.tpot", "such as 500ms"]),
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
    "image left out": ({"engine": {}}, ["spec.engine.image"]),
    "negative replicas": ({"replicas": -1}, ["spec.replicas"]),
    "unknown balancer": ({"routing": {"balancer": "Best"}}, ["spec.routing.balancer", "LeastRequest"]),
    "moves without resume": (
        {"routing": {"rebalance": "Auto", "resume": "Never"}},
        ["spec.routing.rebalance", "routing.resume Auto"],
    ),
    "rollout that cannot move": (
        {"disruption": {"maxUnavailable": 0, "maxSurge": 0}},
        ["spec.disruption", "maxUnavailable or maxSurge above 0"],
    ),
    "token of a service account": (
        {"podTemplate": {"automountServiceAccountToken": True}},
        ["spec.podTemplate.automountServiceAccountToken", "unknown field"],
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
    **{
        f"{name} above what a system has": (
            {"podTemplate": {"securityContext": {name: 2**31}}},
            [f"spec.podTemplate.securityContext.{name}", "2147483647"],
        )
        for name in ("runAsUser", "runAsGroup", "fsGroup")
    },
    "supplemental group above what a system has": (
        {"podTemplate": {"securityContext": {"supplementalGroups": [2**31]}}},
        ["spec.podTemplate.securityContext.supplementalGroups", "2147483647"],
    ),
    "root that may not be root": (
        {"podTemplate": {"securityContext": {"runAsUser": 0, "runAsNonRoot": True}}},
        ["spec.podTemplate.securityContext", "set another user"],
    ),
    "toleration of a value without a key": (
        {"podTemplate": {"tolerations": [{"value": "x"}]}},
        ["spec.podTemplate.tolerations", "operator must be Exists"],
    ),
    "toleration of any value with a value": (
        {"podTemplate": {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]}},
        ["spec.podTemplate.tolerations", "leave value out"],
    ),
    "seconds of no execution": (
        {"podTemplate": {"tolerations": [{"operator": "Exists", "tolerationSeconds": 1}]}},
        ["spec.podTemplate.tolerations", "NoExecute"],
    ),
    "resource without a domain": (
        {"podTemplate": {"resources": {"limits": {"gpu": 1}}}},
        ["spec.podTemplate.resources.limits", "DOMAIN/NAME"],
    ),
    "accelerator without a domain": (
        {"accelerator": {"devicePlugin": {"resourceName": "gpu"}}},
        ["spec.accelerator.devicePlugin.resourceName", "nvidia.com/gpu"],
    ),
    "two ways to devices": (
        {
            "accelerator": {
                "devicePlugin": {"resourceName": "amd.com/gpu"},
                "dra": {"deviceClassName": "gpu.amd.com"},
            }
        },
        ["spec.accelerator.dra", "keep one and set the other to null"],
    ),
    "devices on the CPU": (
        {"accelerator": {"type": "CPU", "dra": {"deviceClassName": "gpu.nvidia.com"}}},
        ["spec.accelerator.type", "set accelerator.devicePlugin and accelerator.dra to null"],
    ),
    "accelerator of an earlier API": (
        {"accelerator": {"type": "None"}},
        ["spec.accelerator.type", "CPU"],
    ),
    "spread constraint twice": (
        {"podTemplate": {"topologySpreadConstraints": [SPREAD, SPREAD]}},
        ["spec.podTemplate.topologySpreadConstraints", "Duplicate value"],
    ),
    "domains of a constraint that binds nobody": (
        {
            "podTemplate": {
                "topologySpreadConstraints": [
                    {**SPREAD, "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}
                ]
            }
        },
        ["spec.podTemplate.topologySpreadConstraints[0].minDomains", "DoNotSchedule"],
    ),
    "field that no pod is told": (
        {
            "engine": {
                **ENGINE,
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.containers"}}}],
            }
        },
        ["spec.engine.env[0].valueFrom.fieldRef.fieldPath", "metadata.name"],
    ),
    "variable from two objects": (
        {"engine": {**ENGINE, "envFrom": [{"secretRef": {"name": "a"}, "configMapRef": {"name": "b"}}]}},
        ["spec.engine.envFrom[0]", "exactly one of secretRef and configMapRef"],
    ),
    "volume of two sources": (
        {
            "podTemplate": {
                "volumes": [{"name": "a", "csi": {"driver": "x.y"}, "image": {"reference": "a/b:1"}}]
            }
        },
        ["spec.podTemplate.volumes[0]", "set exactly one of"],
    ),
    "request above its limit": (
        {"podTemplate": {"resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}}},
        ["spec.podTemplate.resources", "no request may exceed its limit"],
    ),
    "device without a limit": (
        {"podTemplate": {"resources": {"requests": {"example.com/device": 1}}}},
        ["spec.podTemplate.resources", "need an equal limit"],
    ),
    "half a device": (
        {"podTemplate": {"resources": {"limits": {"example.com/device": "500m"}}}},
        ["spec.podTemplate.resources.limits", "whole numbers"],
    ),
    "other devices than the replica's": (
        {
            "accelerator": {"type": "GPU"},
            "podTemplate": {"resources": {"limits": {"nvidia.com/gpu": 2}}},
        },
        ["spec", "engine.tensorParallelSize"],
    ),
    "less than nothing": (
        {"podTemplate": {"resources": {"limits": {"cpu": -1}}}},
        ["spec.podTemplate.resources.limits", "greater than or equal to 0"],
    ),
    "label of no form": (
        {"podTemplate": {"metadata": {"labels": {"a b": "x"}}}},
        ["spec.podTemplate.metadata.labels", "DOMAIN/NAME"],
    ),
    "label value of no form": (
        {"podTemplate": {"nodeSelector": {"a": "x y"}}},
        ["spec.podTemplate.nodeSelector", "begin and end with a letter or digit"],
    ),
    "annotation of the kubelet": (
        {"podTemplate": {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}},
        ["spec.podTemplate.metadata.annotations", "no template's"],
    ),
    "annotations longer than an object's": (
        {"podTemplate": {"metadata": {"annotations": {f"a{n}": "é" * 4096 for n in range(32)}}}},
        ["spec.podTemplate.metadata.annotations", "128 KiB"],
    ),
    "no name of a class": (
        {"podTemplate": {"priorityClassName": "a..b"}},
        ["spec.podTemplate.priorityClassName", "name of an object"],
    ),
    "pull secret twice": (
        {"podTemplate": {"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}},
        ["spec.podTemplate.imagePullSecrets", "Duplicate value"],
    ),
    "volume of nothing": (
        {"podTemplate": {"volumes": [{"name": "a", "configMap": {}}]}},
        ["spec.podTemplate.volumes", "configMap.name"],
    ),
    "mount out of its volume": (
        {
            "podTemplate": {
                "volumes": [{"name": "a", "emptyDir": {}}],
                "volumeMounts": [{"name": "a", "mountPath": "/a", "subPath": "../b"}],
            }
        },
        ["spec.podTemplate.volumeMounts", "within the volume"],
    ),
    "no image": ({"engine": {"image": "example/VLLM:1"}}, ["spec.engine.image", "vllm/vllm-openai"]),
    "start in no time": (
        {"engine": {**ENGINE, "startTimeout": "9s"}},
        ["spec.engine", "startTimeout must be at least 10s"],
    ),
    "start without an end": (
        {"engine": {**ENGINE, "startTimeout": "169h"}},
        ["spec.engine", "at most 168h"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_spec_is_refused_with_field_and_fix(kube, case):
    change, words = BAD[case]
    answer = kube.create("llmservices", llmservice(**change))
    assert answer.status_code in {400, 422}, answer.text
    message = answer.json()["message"]
    assert all(word in message for word in words), message
    if answer.status_code == 422:  # not merely an unknown field
        body = llmservice(**change)
        body["metadata"] |= {"namespace": "llm", "uid": "u"}
        with pytest.raises(SpecInvalidError):  # stored under an older definition
            parse_service(body)


@pytest.mark.parametrize("name", ["1st", "a" * 51, "a.b"])
def test_name_that_makes_no_service_is_refused(kube, name):
    answer = kube.create("llmservices", llmservice(name))
    assert answer.status_code == 422
    assert "DNS label of at most 50" in answer.text


def test_defaults_are_filled_by_the_api_server(kube):
    body = {key: value for key, value in llmservice().items() if key != "spec"}
    minimal = {"model": {"source": "hf://org/name"}, "engine": ENGINE}
    spec = ok(kube.create("llmservices", {**body, "spec": minimal}))["spec"]
    assert spec["replicas"] == 1
    assert spec["scheduling"] == {"policy": "FCFS", "stepBudget": {"mode": "Policy"}}
    assert spec["slo"] == {"perRequest": {"enabled": False}}
    assert spec["prediction"] == {"predictor": "Quantile", "quantilePercent": 50}
    assert spec["disruption"] == {
        "maxUnavailable": 1,
        "maxSurge": 0,
        "drain": "Move",
        "drainTimeout": "5m",
    }
    assert spec["routing"] == {
        "balancer": "SAL",
        "sal": {"kvRelease": "Net"},
        "resume": "Auto",
        "rebalance": "Never",
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
        "topologySpreadConstraints": [SPREAD, {**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}],
        "schedulerName": "gang",
        "serviceAccountName": "weights",
        "priorityClassName": "high",
        "imagePullSecrets": [{"name": "registry"}],
        "resources": {"requests": {"cpu": 2, "memory": "8Gi"}, "limits": {"memory": "16Gi"}},
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "weights", "image": {"reference": "example/weights:1"}},
            {"name": "secrets", "csi": {"driver": "secrets.example.com", "volumeAttributes": {"a": "b"}}},
        ],
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": True, "fsGroup": 1000},
    }
    body = ok(kube.create("llmservices", llmservice(podTemplate=template)))
    assert body["spec"]["podTemplate"]["affinity"] == {"nodeAffinity": {}}


@pytest.mark.parametrize("clients", [["a"], ["a", "b"]])
def test_nobody_is_let_in_by_an_apply_that_leaves_no_client(kube, clients):
    ok(kube.apply("llmservices", llmservice(routing={"access": {"allowedClients": clients}})))
    answer = kube.apply("llmservices", llmservice(routing={"access": {"allowedClients": []}}))
    assert answer.status_code == 422, answer.text
    left = ok(kube.apply("llmservices", llmservice(routing={"access": {"allowedClients": clients[:1]}})))
    assert left["spec"]["routing"]["access"] == {"allowedClients": ["a"]}
