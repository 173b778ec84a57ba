"""What must not get through an LLMService: the node's files, privilege, another namespace's names.

Each attempt goes past the client's own checks: unknown fields are dropped, not refused.
"""

import json
import uuid
from email.utils import parsedate_to_datetime

import pytest
from op_kube import Kube, eventually, llmservice, new_namespace, ok

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

HOST = {"hostPath": {"path": "/"}}
MOUNT = [{"name": "x", "mountPath": "/x"}]
ROOT = {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}, "allowPrivilegeEscalation": True}
ROOT |= {"procMount": "Unmasked", "seccompProfile": {"type": "Unconfined"}, "runAsUser": 0}
SECRET = {"name": "a", "key": "b", "namespace": "kube-system"}
TOKEN = {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}


def volume(**source):
    return {"podTemplate": {"volumes": [{"name": "x", **source}], "volumeMounts": MOUNT}}


def mounted(path):
    mounts = [{"name": "x", "mountPath": path}]
    return {"podTemplate": {"volumes": [{"name": "x", "emptyDir": {}}], "volumeMounts": mounts}}


def with_annotations(key):
    return {"podTemplate": {"metadata": {"annotations": {key: "unconfined"}}}}


def engine(**fields):
    return {"engine": {"image": "example/vllm:1", **fields}}


# Name → (spec, what becomes of it: the API server refuses it, the operator does, or the rest of it runs).
ATTEMPTS = {
    "host path": (volume(**HOST), "HostPathNotAllowed"),
    "host path as a claim": (volume(persistentVolumeClaim={"claimName": "a", **HOST}), "runs"),
    "host path within a config map": (volume(configMap={"name": "a", **HOST}), "runs"),
    "two sources in one volume": (volume(emptyDir={}, **HOST), 422),
    "CSI driver of no name": (volume(csi={"driver": "../host"}), 422),
    "another namespace's secret for a CSI driver": (
        volume(
            csi={
                "driver": "host.example",
                "nodePublishSecretRef": {"name": "a", "namespace": "kube-system"},
                **HOST,
            }
        ),
        "runs",
    ),
    "host path within an image": (volume(image={"reference": "example/weights:1", **HOST}), "runs"),
    "service account token": (volume(**TOKEN), 422),
    "folder above the volume": (
        {
            "podTemplate": {
                **volume(emptyDir={})["podTemplate"],
                "volumeMounts": [MOUNT[0] | {"subPath": "../.."}],
            }
        },
        422,
    ),
    "over the plugin": (mounted("/headrace/plugin"), 422),
    "over the plugin, roundabout": (mounted("/x/../headrace/plugin"), 422),
    "over the plugin, doubled": (mounted("//headrace/plugin"), 422),
    "the operator's volume": (
        {"podTemplate": {"volumes": [], "volumeMounts": [{"name": "headrace", "mountPath": "/x"}]}},
        422,
    ),
    "AppArmor": (with_annotations("container.apparmor.security.beta.kubernetes.io/engine"), 422),
    "devices of the node": (with_annotations("cdi.k8s.io/x"), 422),
    "seccomp": (with_annotations("seccomp.security.alpha.kubernetes.io/pod"), 422),
    "the operator's labels": (
        {"podTemplate": {"metadata": {"labels": {"app.kubernetes.io/component": "picker"}}}},
        422,
    ),
    "file source": ({"model": {"source": "file:///etc"}}, 422),
    "a claim's parent": ({"model": {"source": "pvc://claim/../../etc"}}, 422),
    "privileged engine": ({"podTemplate": {"securityContext": ROOT}}, "runs"),
    "security of the container": (engine(securityContext=ROOT), "runs"),
    "host namespaces": (
        {"podTemplate": {"hostNetwork": True, "hostPID": True, "hostIPC": True, "spec": {"hostPID": True}}},
        "runs",
    ),
    "another service account": (
        {"podTemplate": {"serviceAccountName": "headrace-operator", "automountServiceAccountToken": True}},
        "ServiceAccountNotAllowed",
    ),
    "token of the service account": (
        {"podTemplate": {"serviceAccountName": "default", "automountServiceAccountToken": True}},
        "runs",
    ),
    "another container": (
        {"podTemplate": {"containers": [{"name": "y", "image": "y", "securityContext": ROOT}]}},
        "runs",
    ),
    "another start": (engine(command=["sh"], lifecycle={}, livenessProbe={}), "runs"),
    "another namespace's secret": (
        {
            "model": {
                "source": "hf://a/b",
                "tokenSecretRef": {"name": "a", "key": "b", "namespace": "kube-system"},
            }
        },
        "runs",
    ),
}


@pytest.mark.parametrize("name", ATTEMPTS)
def test_no_field_reaches_the_host_or_gives_privilege(kube, operator, name):
    spec, outcome = ATTEMPTS[name]
    body = llmservice(**{"model": {"source": "hf://a/b"}, **spec})
    body["spec"]["model"]["servedName"] = f"m-{kube.namespace}"
    answer = kube.http.post(kube.path("llmservices"), params={"fieldValidation": "Ignore"}, json=body)
    if outcome == 422:
        assert answer.status_code == 422, answer.text
        return
    ok(answer)
    if outcome != "runs":
        eventually(lambda: kube.condition("chat", "Accepted")[1] == outcome)
        assert kube.list("deployments") == []
        return
    made = eventually(lambda: kube.get("deployments", "chat"))
    assert dangers(made["spec"]["template"]["spec"]) == []


def dangers(pod):
    """What of a pod's specification reaches the host or gives privilege; empty if nothing does."""
    words = ("hostPath", "privileged", "SYS_ADMIN", "Unmasked", "Unconfined", "kube-system", '"add"')
    fields = ("hostNetwork", "hostPID", "hostIPC")
    text = json.dumps(pod)
    found = [word for word in words if word in text] + [field for field in fields if pod.get(field)]
    if pod["automountServiceAccountToken"]:
        found.append("token")
    if pod["serviceAccountName"] != "default":
        found.append("account")
    containers = [*pod["initContainers"], *pod["containers"]]
    if [c["name"] for c in containers] != ["headrace-install", "headrace-sidecar", "engine"]:
        found.append("containers")
    return found + [c["name"] for c in containers if c["securityContext"]["allowPrivilegeEscalation"]]


@pytest.fixture
def thief(crd):
    other = new_namespace(crd, f"a-thief-{uuid.uuid4().hex[:8]}")  # sorts first
    yield other
    for service in other.list("llmservices"):
        other.delete("llmservices", service["metadata"]["name"])
    other.close()


def gateway_models(kube):
    made = kube.get("llmroutes", "chat")
    return made["spec"]["models"] if made else None


def now(kube):
    """The API server's time as in `creationTimestamp`, whole seconds: in the same one, names decide."""
    date = parsedate_to_datetime(kube.http.get("/version").headers["Date"])
    return date.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_no_name_can_be_taken_from_another_namespace(kube: Kube, thief: Kube, operator):
    """Neither the served name, nor the name that is a service's own, by a new or by a changed service."""
    kube.start()
    name, own = f"chat-{kube.namespace}", f"{kube.namespace}/chat"
    eventually(lambda: gateway_models(kube) == [own, name])
    eventually(lambda: now(kube) > kube.get("llmservices", "chat")["metadata"]["creationTimestamp"])
    for wanted in (name, own):
        ok(thief.create("llmservices", llmservice(model={"source": "hf://a/b", "servedName": wanted})))
        eventually(lambda: thief.condition("chat", "Accepted")[1] == "ModelNameConflict")
        assert thief.list("deployments") == []
        ok(thief.delete("llmservices", "chat"))
        eventually(lambda: thief.get("llmservices", "chat") is None)
    ok(thief.create("llmservices", llmservice(model={"source": "hf://a/b", "servedName": "honest"})))
    eventually(lambda: gateway_models(thief) == [f"{thief.namespace}/chat", "honest"])
    ok(thief.patch("llmservices", "chat", {"spec": {"model": {"servedName": name}}}))
    eventually(lambda: thief.condition("chat", "Accepted")[1] == "ModelNameConflict")
    assert own in thief.condition("chat", "Accepted")[2]
    assert gateway_models(thief) == [f"{thief.namespace}/chat", "honest"]
    assert gateway_models(kube) == [own, name]


def test_a_name_stays_with_its_holder_against_an_older_service_until_it_lets_go(
    kube: Kube, thief: Kube, operator
):
    ok(thief.create("llmservices", llmservice(model={"source": "hf://a/b", "servedName": "honest"})))
    eventually(lambda: gateway_models(thief) == [f"{thief.namespace}/chat", "honest"])
    eventually(lambda: now(thief) > thief.get("llmservices", "chat")["metadata"]["creationTimestamp"])
    kube.start()
    name, own = f"chat-{kube.namespace}", f"{kube.namespace}/chat"
    eventually(lambda: granted(kube) == [own, name])
    ok(thief.patch("llmservices", "chat", {"spec": {"model": {"servedName": name}}}))
    eventually(lambda: thief.condition("chat", "Accepted")[1] == "ModelNameConflict")
    assert own in thief.condition("chat", "Accepted")[2]
    assert (gateway_models(kube), gateway_models(thief)) == (
        [own, name],
        [f"{thief.namespace}/chat", "honest"],
    )
    assert kube.condition("chat", "Accepted")[0] == "True"
    ok(kube.patch("llmservices", "chat", {"spec": {"model": {"servedName": f"{name}-2"}}}))
    eventually(lambda: gateway_models(thief) == [f"{thief.namespace}/chat", name])
    assert gateway_models(kube) == [own, f"{name}-2"]
    eventually(lambda: granted(thief) == [f"{thief.namespace}/chat", name])


def granted(kube):
    return kube.get("llmservices", "chat").get("status", {}).get("models")
