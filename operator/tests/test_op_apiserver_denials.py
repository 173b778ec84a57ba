"""A real ValidatingAdmissionPolicy, and a real ResourceQuota, against what the operator would write.

The quota's controller does not run here: the tests count for it. Who denies is the API server.
"""

import json

import pytest
from op_admission import WORDS, images_denied, probe
from op_kube import eventually, ok
from op_kubelet import FakeNode

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]


@pytest.fixture
def policy(kube):
    """Allows no Deployment with an image of evil/ in the namespace."""
    with images_denied(kube, "evil/") as name:
        yield name


PROBES = {
    "deployments.apps": probe("x"),
    "networkpolicies.networking.k8s.io": {"metadata": {"generateName": "x"}, "spec": {"podSelector": {}}},
}


def accepted(kube):
    return kube.condition("chat", "Accepted")


def policy_of(kube):
    return json.loads(kube.get("configmaps", "chat-policy")["data"]["policy.json"])["policy"]


def change(kube, **spec):
    ok(kube.patch("llmservices", "chat", {"spec": spec}))


def image_of(kube):
    return kube.get("deployments", "chat")["spec"]["template"]["spec"]["containers"][0]["image"]


def settled(kube):
    ready = kube.condition("chat", "Ready")[0], kube.condition("chat", "PolicyApplied")[0]
    return accepted(kube)[0] == "True" and ready == ("True", "True")


def test_a_policy_that_denies_a_template_keeps_nothing_else_from_being_carried_out(kube, policy, operator):
    with FakeNode(kube) as node:
        kube.start()
        eventually(lambda: settled(kube))
        before = kube.get("deployments", "chat")["spec"]["template"]
        change(
            kube,
            engine={"image": "evil/vllm:2"},
            scheduling={"policy": "LARRY"},
            replicas=3,
            slo={"ttft": "2s"},
        )
        eventually(lambda: accepted(kube)[:2] == ("False", "AdmissionDenied"))
        assert policy in accepted(kube)[2]
        assert WORDS in accepted(kube)[2]
        eventually(lambda: policy_of(kube) == "LARRY")
        eventually(lambda: kube.condition("chat", "PolicyApplied")[:2] == ("True", "Applied"))
        eventually(lambda: kube.get("llmservices", "chat")["status"]["readyReplicas"] == 3)
        deployment = kube.get("deployments", "chat")
        assert (deployment["spec"]["replicas"], deployment["spec"]["template"]) == (3, before)
        progress = eventually(lambda: said(kube, "Reconciling", "NotAccepted"))
        assert "as the spec asks" not in progress
        assert len(node.engines) == 3  # none was replaced
        settled_at = kube.get("deployments", "chat")["metadata"]["resourceVersion"]
        change(kube, scheduling={"policy": "FCFS"})
        eventually(lambda: policy_of(kube) == "FCFS")
        assert kube.get("deployments", "chat")["metadata"]["resourceVersion"] == settled_at
        change(kube, engine={"image": "registry.example/vllm:2"})
        eventually(lambda: accepted(kube)[0] == "True")
        assert image_of(kube) == "registry.example/vllm:2"


def test_a_service_whose_own_template_a_policy_has_come_to_deny_is_still_scaled(kube, operator):
    with FakeNode(kube):
        kube.start(engine={"image": "old/vllm:1"})
        eventually(lambda: settled(kube))
        before = kube.get("deployments", "chat")["spec"]["template"]
        with images_denied(kube, "old/"):
            change(kube, replicas=3, scheduling={"policy": "LARRY"})
            eventually(lambda: accepted(kube)[:2] == ("False", "AdmissionDenied"))
            assert accepted(kube)[2].count(WORDS) == 1
            eventually(lambda: policy_of(kube) == "LARRY")
            eventually(lambda: kube.get("llmservices", "chat")["status"]["readyReplicas"] == 3)
            change(kube, replicas=1)
            eventually(lambda: kube.get("deployments", "chat")["spec"]["replicas"] == 1)
            ok(kube.patch("deployments", "chat", {"spec": {"replicas": 2}}, sub="scale"))  # by somebody else
            eventually(lambda: kube.get("deployments", "chat")["spec"]["replicas"] == 1)
        eventually(lambda: accepted(kube)[0] == "True")
        deployment = kube.get("deployments", "chat")
        assert (deployment["spec"]["replicas"], deployment["spec"]["template"]) == (1, before)


def said(kube, kind, reason):
    _, found, message = kube.condition("chat", kind)
    return message if found == reason else None


def allow_none(kube, resource):
    """A quota, in force, that allows no new object of a kind."""
    hard, used = {f"count/{resource}": "0"}, {f"count/{resource}": "0"}
    ok(kube.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}}))
    ok(kube.patch("resourcequotas", "q", {"status": {"hard": hard, "used": used}}, sub="status"))
    eventually(lambda: "exceeded quota" in kube.create(resource.partition(".")[0], PROBES[resource]).text)


def test_a_quota_that_denies_one_object_keeps_no_other_from_being_written(kube, operator):
    with FakeNode(kube):
        kube.start()
        eventually(lambda: settled(kube))
        allow_none(kube, "networkpolicies.networking.k8s.io")
        ok(kube.delete("networkpolicies", "chat"))
        eventually(lambda: accepted(kube)[:2] == ("False", "AdmissionDenied"))
        assert "NetworkPolicy chat" in accepted(kube)[2]
        assert "exceeded quota: q" in accepted(kube)[2]
        change(kube, scheduling={"policy": "LARRY"}, replicas=1)
        eventually(lambda: policy_of(kube) == "LARRY")
        eventually(lambda: kube.get("deployments", "chat")["spec"]["replicas"] == 1)
        ok(kube.delete("resourcequotas", "q"))
        eventually(lambda: kube.get("networkpolicies", "chat"))
        eventually(lambda: accepted(kube)[0] == "True")


def test_a_service_that_a_quota_denies_at_its_beginning_makes_nothing(kube, operator):
    allow_none(kube, "deployments.apps")
    kube.start()
    eventually(lambda: accepted(kube)[:2] == ("False", "AdmissionDenied"))
    assert "exceeded quota: q" in accepted(kube)[2]
    assert kube.get("configmaps", "chat-policy") is None
    ok(kube.delete("resourcequotas", "q"))
    eventually(lambda: kube.get("deployments", "chat"))
    eventually(lambda: accepted(kube)[0] == "True")
