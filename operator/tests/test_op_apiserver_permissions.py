"""The chart's permissions, enforced by a real API server while the operator does all that it ever does."""

import op_release
import pytest
from op_admission import images_denied
from op_devices import spec
from op_kube import eventually, gpupool, ok
from op_kubelet import FakeNode
from op_process import Operator

from e2e import helm
from e2e.faults import Drop, Proxy, Rule

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(400)]

# Asked for by an admission plugin that not every cluster has; no request shows it.
UNSEEN = {
    ("headrace.dev/llmservices/finalizers", "update"),
    ("headrace.dev/gpupools/finalizers", "update"),
}
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}


def granted():
    """What the chart's roles give the operator's account."""
    return {
        (f"{group}/{resource}", verb)
        for role in helm.render()
        if role["kind"] in {"ClusterRole", "Role"} and role["metadata"]["name"].startswith(op_release.ACCOUNT)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(answers):
    """What each request that was answered needed, as group/resource and verb."""
    return {need for call, status in answers for need in needs(call, status)}


def needs(call, status):
    parts = call.path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1] if len(parts) > 1 else "", parts[3:])
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    if not rest:
        return  # discovery, which everyone may do
    resource, name = "/".join([rest[0], *rest[2:]]), rest[1:2]
    if call.method == "GET":
        yield f"{group}/{resource}", "watch" if call.watch else "get" if name else "list"
        return
    yield f"{group}/{resource}", VERBS[call.method]
    if status == 201:
        yield f"{group}/{resource}", "create"


def test_the_permissions_suffice_and_none_is_unused(crd, kube, tmp_path):
    """Invariant 17: neither RBAC nor an admission policy forbids a request, and each permission is needed."""
    kube.http.delete(f"/api/v1/namespaces/{helm.NAMESPACE}/secrets/headrace-gateway-key")  # of other tests
    with Proxy(crd.url, crd.folder / "pki" / "ca.crt", op_release.token(crd)) as proxy:
        config = str(proxy.kubeconfig(tmp_path / "kubeconfig"))
        chart = {"KUBECONFIG": config, "HEADRACE_ROUTED_GATE": "true"}
        operator = Operator(crd, tmp_path / "log", hurry=20.0, **chart).wait()
        try:
            everything(kube, proxy)
            shared(kube)
            refused = [call for call, status in proxy.answers if status in {403, 422}]
            scaled_apart(kube)
        finally:
            operator.stop()
    assert refused == []
    seen = used(proxy.answers)
    assert seen <= granted()
    assert granted() - seen == UNSEEN


def scaled_apart(kube):
    """Replicas of a Deployment that must stay as it is otherwise."""
    image = kube.get("llmservices", "chat")["spec"]["engine"]["image"]
    with images_denied(kube, image):
        ok(
            kube.patch(
                "llmservices", "chat", {"spec": {"replicas": 1, "accelerator": {"type": "CPU", "dra": None}}}
            )
        )
        eventually(lambda: kube.get("deployments", "chat")["spec"]["replicas"] == 1)


def left_by_an_earlier_release(kube):
    """A ConfigMap in an LLMRoute's place, which is to go."""
    owner = kube.get("llmroutes", "chat")["metadata"]["ownerReferences"]
    labels = {
        "app.kubernetes.io/managed-by": "headrace",
        "headrace.dev/service": "chat",
        "headrace.dev/gateway-config": "true",
    }
    metadata = {"name": "chat-gateway", "labels": labels, "ownerReferences": owner}
    ok(kube.create("configmaps", {"metadata": metadata, "data": {"gateway.json": "{}"}}))
    eventually(lambda: kube.get("configmaps", "chat-gateway") is None)


def shared(kube):
    """A pool of which groups go, one of them with devices."""
    kube.start("gpu", **spec())
    ok(kube.apply("gpupools", gpupool(fast=["chat"], slow=["chat-2"], devices=["gpu"])))
    ours = {"labelSelector": "headrace.dev/gpu-pool"}
    eventually(lambda: kube.list("resourceclaims", **ours))
    eventually(lambda: kube.condition("shared", "Ready", "gpupools")[1] == "MemberNotFound")
    eventually(lambda: "turn-group.json" in kube.get("configmaps", "chat-policy")["data"])
    ok(kube.apply("gpupools", gpupool(fast=["chat"])))
    eventually(lambda: kube.get("deployments", "shared-slow-turns") is None)
    eventually(lambda: kube.get("networkpolicies", "shared-slow-turns") is None)
    eventually(lambda: not kube.list("resourceclaims", **ours))


def everything(kube, proxy):
    """A service's life with all that it may bring."""
    kube.start(accelerator={"type": "GPU", "dra": {"deviceClassName": "gpu.nvidia.com"}})
    with FakeNode(kube, picker=True):
        eventually(lambda: kube.condition("chat", "PolicyApplied")[0] == "True")
        left_by_an_earlier_release(kube)
        ok(kube.patch("llmservices", "chat", {"spec": {"scheduling": {"policy": "LARRY"}}}))
        eventually(lambda: '"LARRY"' in kube.get("configmaps", "chat-policy")["data"]["policy.json"])
        eventually(lambda: kube.condition("chat", "PolicyApplied")[0] == "True")  # by a refresh of its pods
        with proxy.rule(Rule(Drop(), lambda call: call.path.endswith("/pods"))):  # found without the watch
            ok(kube.patch("llmservices", "chat", {"spec": {"replicas": 3}}))
            eventually(lambda: kube.get("llmservices", "chat")["status"]["readyReplicas"] == 3)
    claim = {"source": "pvc://nowhere/tiny"}
    host = [{"name": "host", "hostPath": {"path": "/etc"}}]
    for _ in range(2):  # the second time, events that exist count up
        ok(kube.patch("llmservices", "chat", {"spec": {"podTemplate": {"volumes": host}}}))
        eventually(lambda: kube.condition("chat", "Accepted")[1] == "HostPathNotAllowed")
        ok(kube.patch("llmservices", "chat", {"spec": {"podTemplate": {"volumes": []}, "model": claim}}))
        eventually(lambda: kube.condition("chat", "Accepted")[1] == "ModelClaimNotFound")
    patch = {"model": {"source": "pvc://models/tiny"}, "accelerator": {"type": "CPU", "dra": None}}
    ok(kube.patch("llmservices", "chat", {"spec": patch}))
    eventually(lambda: kube.get("resourceclaimtemplates", "chat-gpu") is None)
