"""The whole operator as a process against a real API server; kubelet and sidecars are played by the test."""

import json
import time

import pytest
from op_kube import eventually, llmservice, ok
from op_kubelet import FakeNode

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("operator"), pytest.mark.timeout(300)]

OWNED = {
    "deployments": {"chat"},
    "services": {"chat"},
    "configmaps": {"chat-policy"},
    "llmroutes": {"chat"},
    "networkpolicies": {"chat"},
    "poddisruptionbudgets": {"chat"},
}


def owned(kube):
    mine = {"labelSelector": "headrace.dev/service"}
    found = {plural: {item["metadata"]["name"] for item in kube.list(plural, **mine)} for plural in OWNED}
    return {plural: names for plural, names in found.items() if names}


def policy(kube, name="chat"):
    return json.loads(kube.get("configmaps", f"{name}-policy")["data"]["policy.json"])


def settled(kube, name="chat"):
    return (
        kube.condition(name, "Ready")[0] == "True"
        and kube.condition(name, "PolicyApplied")[0] == "True"
        and kube.condition(name, "Reconciling")[1] == "Settled"
    )


def test_apply_makes_the_owned_objects_and_delete_removes_them(kube):
    kube.start()
    eventually(lambda: owned(kube) == OWNED)
    with FakeNode(kube):
        eventually(lambda: settled(kube))
        body = kube.get("llmservices", "chat")
        assert body["status"]["readyReplicas"] == 2
        assert body["status"]["policy"]["appliedReplicas"] == 2
        assert body["status"]["url"] == f"http://gateway.example/{kube.namespace}/chat/v1"
        assert "finalizers" not in body["metadata"]
        ok(kube.delete("llmservices", "chat"))
        eventually(lambda: not owned(kube), 180)  # the collector looks for new kinds twice a minute


def test_policy_patch_is_confirmed_live_and_leaves_the_deployment_alone(kube):
    kube.start()
    with FakeNode(kube):
        eventually(lambda: settled(kube))
        before = kube.get("deployments", "chat")["metadata"]["generation"]
        for name in ("LARRY", "FCFS", "LARRY"):
            ok(kube.patch("llmservices", "chat", {"spec": {"scheduling": {"policy": name}}}))
            generation = kube.get("llmservices", "chat")["metadata"]["generation"]
            eventually(lambda generation=generation: applied(kube, generation))
            assert policy(kube)["policy"] == name
        assert kube.get("deployments", "chat")["metadata"]["generation"] == before


def applied(kube, generation):
    status = kube.get("llmservices", "chat")["status"]
    condition = next(c for c in status["conditions"] if c["type"] == "PolicyApplied")
    return condition["observedGeneration"] == generation and condition["status"] == "True"


def test_nothing_is_written_at_the_fixpoint(kube, operator):
    kube.start()
    with FakeNode(kube):
        eventually(lambda: settled(kube))
        eventually(lambda: quiet(kube, operator))
        before = operator.metric("headrace_operator_api_requests_total", verb="PATCH")
        reconciled = operator.metric("headrace_operator_reconcile_seconds_count")
        ok(kube.patch("llmservices", "chat", {"metadata": {"labels": {"touched": "yes"}}}))
        eventually(lambda: operator.metric("headrace_operator_reconcile_seconds_count") > reconciled)
        assert operator.metric("headrace_operator_api_requests_total", verb="PATCH") == before


def quiet(kube, operator):
    """Whether a second passes without a reconcile."""
    before = operator.metric("headrace_operator_reconcile_seconds_count")
    time.sleep(1.0)
    return operator.metric("headrace_operator_reconcile_seconds_count") == before


def test_foreign_fields_stay_and_our_own_are_healed(kube):
    kube.start()
    eventually(lambda: owned(kube) == OWNED)
    foreign = {"metadata": {"annotations": {"example.com/note": "mine"}}, "spec": {"replicas": 7}}
    ok(kube.patch("deployments", "chat", foreign))
    eventually(lambda: kube.get("deployments", "chat")["spec"]["replicas"] == 2)
    assert kube.get("deployments", "chat")["metadata"]["annotations"]["example.com/note"] == "mine"
    kube.delete("services", "chat")
    eventually(lambda: kube.get("services", "chat"))


def relabel(metadata, **labels):
    kept = {name: value for name, value in metadata["labels"].items() if name not in OURS}
    metadata["labels"] = kept | {OURS[name]: value for name, value in labels.items()}


OURS = {"service": "headrace.dev/service", "manager": "app.kubernetes.io/managed-by"}
OURS |= {label: name for name, label in OURS.items()}
# What somebody's manifest may make of an object's metadata.
REPLACED = {
    "no service": lambda metadata: relabel(metadata, manager="headrace"),
    "another service": lambda metadata: relabel(metadata, manager="headrace", service="other"),
    "no manager": lambda metadata: relabel(metadata, service="chat"),
    "no label": lambda metadata: metadata.pop("labels"),
    "nothing": lambda metadata: [metadata.pop(name) for name in ("labels", "annotations", "ownerReferences")],
}


@pytest.mark.parametrize("case", REPLACED)
def test_an_object_that_lost_our_marks_gets_them_back_at_once(kube, case):
    """The watches select by label: they say that it is gone, or tell of an object that seems nobody's."""
    kube.start()
    eventually(lambda: owned(kube) == OWNED)
    eventually(lambda: kube.condition("chat", "Accepted")[0] == "True")
    for plural in ("deployments", "services", "configmaps"):
        name = "chat-policy" if plural == "configmaps" else "chat"
        before = kube.get(plural, name)
        replaced = json.loads(json.dumps(before))
        del replaced["metadata"]["resourceVersion"]  # whatever its version is
        REPLACED[case](replaced["metadata"])
        ok(kube.http.put(kube.path(plural, name), params={"fieldManager": "kubectl"}, json=replaced))
        began = time.monotonic()
        eventually(
            lambda plural=plural, name=name, before=before: marks(kube.get(plural, name)) == marks(before)
        )
        assert time.monotonic() - began < 10.0  # those that see it only in the lists take up to 45 s
        assert kube.get(plural, name)["metadata"]["uid"] == before["metadata"]["uid"]


def marks(body):
    metadata = body["metadata"]
    applied = (metadata.get("annotations") or {}).get("headrace.dev/applied-hash")
    return metadata.get("labels"), metadata.get("ownerReferences"), applied


def test_the_older_service_keeps_the_model_name(kube):
    model = {"source": "hf://a/b", "servedName": f"m-{kube.namespace}"}
    kube.start("first", model=model)
    eventually(lambda: kube.condition("first", "Accepted")[0] == "True")
    time.sleep(1.0)  # creation times have a resolution of one second
    kube.start("second", model=model)
    eventually(lambda: kube.condition("second", "Accepted")[1] == "ModelNameConflict")
    assert "spec.model.servedName" in kube.condition("second", "Accepted")[2]
    assert kube.get("deployments", "second") is None
    assert kube.get("llmroutes", "first")["spec"]["models"] == [
        f"{kube.namespace}/first",
        f"m-{kube.namespace}",
    ]


def test_a_refused_spec_changes_no_pod_and_what_needs_none_is_carried_out(kube):
    kube.start()
    eventually(lambda: owned(kube) == OWNED)
    before = kube.get("deployments", "chat")["spec"]["template"]
    volume = {"name": "host", "hostPath": {"path": "/etc"}}
    ok(kube.patch("llmservices", "chat", {"spec": {"podTemplate": {"volumes": [volume]}, "replicas": 5}}))
    eventually(lambda: kube.condition("chat", "Accepted")[1] == "HostPathNotAllowed")
    eventually(lambda: kube.get("deployments", "chat")["spec"]["replicas"] == 5)
    assert kube.get("deployments", "chat")["spec"]["template"] == before


BROKEN = {
    "claim": ({"model": {"source": "pvc://nowhere/tiny"}}, "ModelClaimNotFound", "spec.model.source"),
    "affinity": (
        {
            "podTemplate": {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}
                    }
                }
            }
        },
        "InvalidSpec",
        "spec.podTemplate",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_rollout_that_cannot_work_is_refused_and_the_policy_goes_on(kube, case):
    change, reason, field = BROKEN[case]
    kube.start()
    eventually(lambda: owned(kube) == OWNED)
    eventually(lambda: kube.condition("chat", "Accepted")[0] == "True")
    before = kube.get("deployments", "chat")["metadata"]["generation"]
    ok(kube.patch("llmservices", "chat", {"spec": {"scheduling": {"policy": "LARRY"}, **change}}))
    eventually(lambda: kube.condition("chat", "Accepted")[1] == reason)
    assert field in kube.condition("chat", "Accepted")[2]
    assert kube.get("deployments", "chat")["metadata"]["generation"] == before
    eventually(lambda: policy(kube)["policy"] == "LARRY")


def test_an_object_of_someone_else_is_not_taken(kube):
    mine = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat"},
        "spec": {"ports": [{"port": 1}]},
    }
    ok(kube.create("services", mine))
    kube.start()
    eventually(lambda: kube.condition("chat", "Accepted")[1] == "ObjectNameTaken")
    assert owned(kube) == {}
    ok(kube.delete("services", "chat"))
    eventually(lambda: owned(kube) == OWNED)


def test_paused_writes_nothing_but_status(kube):
    body = llmservice(model={"source": "hf://a/b", "servedName": f"m-{kube.namespace}"})
    body["metadata"]["annotations"] = {"headrace.dev/paused": "true"}
    ok(kube.create("llmservices", body))
    eventually(lambda: kube.condition("chat", "Reconciling")[1] == "Paused")
    assert owned(kube) == {}
    ok(kube.patch("llmservices", "chat", {"metadata": {"annotations": {"headrace.dev/paused": None}}}))
    eventually(lambda: owned(kube) == OWNED)


def test_scale_subresource(kube):
    kube.start()
    with FakeNode(kube):
        eventually(lambda: settled(kube))
        template = kube.get("deployments", "chat")["spec"]["template"]
        ok(kube.patch("llmservices", "chat", {"spec": {"replicas": 3}}, sub="scale"))
        eventually(lambda: kube.get("deployments", "chat")["spec"]["replicas"] == 3)
        eventually(lambda: kube.get("llmservices", "chat")["status"]["readyReplicas"] == 3)
        scale = ok(kube.http.get(kube.path("llmservices", "chat", "scale")))
        assert scale["status"]["replicas"] == 3
        assert "headrace.dev/service=chat" in scale["status"]["selector"]
        assert kube.get("deployments", "chat")["spec"]["template"] == template


def test_reasons_tell_capacity_from_a_missing_claim(kube):
    kube.start()
    with FakeNode(kube) as node:
        node.problem = unscheduled("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
        eventually(lambda: kube.condition("chat", "Ready")[1] == "Unschedulable")
        node.problem = unscheduled('persistentvolumeclaim "models" not found')
        eventually(lambda: kube.condition("chat", "Ready")[1] == "ModelClaimNotFound")
        assert "spec.model.source" in kube.condition("chat", "Ready")[2]


def unscheduled(message):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def test_events_tell_transitions_once(kube):
    kube.start()
    with FakeNode(kube):
        eventually(lambda: settled(kube))

        def told():
            events = [e for e in kube.list("events") if e["regarding"]["kind"] == "LLMService"]
            return {"Valid", "AllReplicasReady", "Applied"} <= {e["reason"] for e in events} and events

        events = eventually(told)
        assert len({e["metadata"]["name"] for e in events}) == len(events)
        assert [e["reason"] for e in events].count("Valid") == 1


def test_a_condition_on_devices_that_is_none_changes_no_pod_and_no_claim(kube):
    gpu = {"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}}
    kube.start(accelerator=gpu)
    eventually(lambda: kube.get("deployments", "chat"))

    def written():
        return kube.get("deployments", "chat")["spec"], kube.get("resourceclaimtemplates", "chat-gpu")

    before = written()
    wrong = {"dra": {**gpu["dra"], "selectors": [{"cel": {"expression": "device.model =="}}]}}
    ok(kube.patch("llmservices", "chat", {"spec": {"accelerator": wrong}}))
    eventually(lambda: kube.condition("chat", "Accepted")[0] == "False")
    _, reason, told = kube.condition("chat", "Accepted")
    assert reason == "InvalidSpec"
    assert told.startswith("spec.accelerator.dra: correct what the API server refuses")
    assert "device.model ==" in told
    assert written() == before
    ok(kube.patch("llmservices", "chat", {"spec": {"accelerator": {"dra": {"selectors": None}}}}))
    eventually(lambda: kube.condition("chat", "Accepted")[0] == "True")


@pytest.mark.parametrize("selectors", [None, [{"cel": {"expression": "false"}}]])
def test_conditions_on_devices_can_be_changed_and_taken_back(kube, selectors):
    first = [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]
    dra = {"deviceClassName": "gpu.nvidia.com", "selectors": first}

    def asked():
        item = kube.get("resourceclaimtemplates", "chat-gpu")
        return item and item["spec"]["spec"]["devices"]["requests"][0]["exactly"].get("selectors")

    kube.start(accelerator={"type": "GPU", "dra": dra})
    eventually(lambda: asked() == first)
    ok(kube.patch("llmservices", "chat", {"spec": {"accelerator": {"dra": {"selectors": selectors}}}}))
    eventually(lambda: kube.get("resourceclaimtemplates", "chat-gpu") and asked() == selectors)
    eventually(lambda: kube.condition("chat", "Degraded")[0] == "False")


def test_dra_claims_devices_by_a_template(kube):
    gpu = {"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}}
    kube.start(accelerator=gpu)
    template = eventually(lambda: kube.get("resourceclaimtemplates", "chat-gpu"))
    assert template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    engine = {"image": "example/vllm:1", "tensorParallelSize": 2}
    ok(kube.patch("llmservices", "chat", {"spec": {"engine": engine}}))

    def doubled():
        item = kube.get("resourceclaimtemplates", "chat-gpu")
        return item and item["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2

    eventually(doubled)
    ok(kube.patch("llmservices", "chat", {"spec": {"accelerator": {"type": "CPU", "dra": None}}}))
    eventually(lambda: kube.get("resourceclaimtemplates", "chat-gpu") is None)
