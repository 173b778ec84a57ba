"""A small synchronous client for tests, so that they do not check the operator with its own API code."""

import ssl
import time
from pathlib import Path

import httpx
import yaml

CRDS = Path(__file__).parents[2] / "crds"
CRD = CRDS / "llmservices.headrace.dev.yaml"
ROUTE_CRD = CRDS / "llmroutes.headrace.dev.yaml"
ROOTS = {
    "llmservices": "/apis/headrace.dev/v1alpha1",
    "llmroutes": "/apis/headrace.dev/v1alpha1",
    "gpupools": "/apis/headrace.dev/v1alpha1",
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "resourceclaimtemplates": "/apis/resource.k8s.io/v1",
    "resourceclaims": "/apis/resource.k8s.io/v1",
    "events": "/apis/events.k8s.io/v1",
}


class Kube:
    """Requests to the API server in one namespace."""

    def __init__(self, apiserver, namespace):
        context = ssl.create_default_context(cafile=str(apiserver.folder / "pki" / "ca.crt"))
        headers = {"Authorization": f"Bearer {apiserver.token}"}
        self.http = httpx.Client(
            base_url=apiserver.url, headers=headers, verify=context, trust_env=False, timeout=60
        )
        self.namespace = namespace

    def close(self):
        self.http.close()

    def path(self, plural, name="", sub=""):
        root = ROOTS.get(plural, "/api/v1")
        return "/".join(part for part in (f"{root}/namespaces/{self.namespace}/{plural}", name, sub) if part)

    def get(self, plural, name):
        answer = self.http.get(self.path(plural, name))
        return None if answer.status_code == 404 else ok(answer)

    def list(self, plural, **query):
        return ok(self.http.get(self.path(plural), params=query))["items"]

    def create(self, plural, body):
        return self.http.post(self.path(plural), params={"fieldValidation": "Strict"}, json=body)

    def start(self, name="chat", **spec):
        """Create an LLMService whose model name no other namespace's test claims."""
        model = {"source": "pvc://models/tiny", "servedName": f"{name}-{self.namespace}"}
        return ok(self.create("llmservices", llmservice(name, **{"model": model, **spec})))

    def patch(self, plural, name, body, sub="", manager="test"):
        headers = {"Content-Type": "application/merge-patch+json"}
        return self.http.patch(
            self.path(plural, name, sub), params={"fieldManager": manager}, json=body, headers=headers
        )

    def apply(self, plural, body, manager="test"):
        headers = {"Content-Type": "application/apply-patch+yaml"}
        query = {"fieldManager": manager, "force": "true"}
        path = self.path(plural, body["metadata"]["name"])
        return self.http.patch(path, params=query, json=body, headers=headers)

    def delete(self, plural, name):
        return self.http.delete(self.path(plural, name), params={"propagationPolicy": "Background"})

    def condition(self, name, kind, plural="llmservices"):
        """(status, reason, message) of a condition, of a service's by default; Nones before there is one."""
        body = self.get(plural, name) or {}
        for condition in body.get("status", {}).get("conditions", []):
            if condition["type"] == kind:
                return condition["status"], condition["reason"], condition["message"]
        return None, None, None


def ok(answer):
    """The JSON of an answer that must be a success."""
    assert answer.status_code < 300, answer.text
    return answer.json()


def eventually(check, seconds=120.0, every=0.05):
    """The first true value of `check`; fails with its last value at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < deadline, f"still {value!r} after {seconds} s"
        time.sleep(every)


def apply_crd(kube, text):
    """Apply one definition; it is served a moment later."""
    headers = {"Content-Type": "application/apply-patch+yaml"}
    name = yaml.safe_load(text)["metadata"]["name"]
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    query = {"fieldManager": "test", "force": "true"}
    ok(kube.http.patch(path, params=query, content=text.encode(), headers=headers))


def install_crd(apiserver):
    """Install the definitions and wait until they are served."""
    kube = Kube(apiserver, "default")
    for file in CRDS.glob("*.yaml"):
        apply_crd(kube, file.read_text())
    for plural in ("llmservices", "llmroutes", "gpupools"):
        eventually(lambda plural=plural: kube.http.get(kube.path(plural)).is_success)
    kube.close()


def new_namespace(apiserver, name):
    """A Kube in a fresh namespace whose pods can be created."""
    kube = Kube(apiserver, name)
    ok(kube.http.post("/api/v1/namespaces", json={"metadata": {"name": name}}))
    eventually(lambda: kube.get("serviceaccounts", "default"))
    return kube


def gpupool(name="shared", placement=None, **groups):
    """A GPUPool with these groups; each is a list of its members."""
    listed = [{"name": group, "members": list(members)} for group, members in groups.items()]
    asked = {} if placement is None else {"placement": placement}
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": name},
        "spec": asked | ({"groups": listed} if listed or not asked else {}),
    }


def llmservice(name="chat", **spec):
    """A small valid LLMService; keyword arguments replace blocks of its spec."""
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": name},
        "spec": {
            "model": {"source": "pvc://models/tiny", "servedName": name},
            "engine": {"image": "example/vllm:1"},
            "accelerator": {"type": "CPU"},
            "replicas": 2,
            "scheduling": {"policy": "FCFS", "larry": {"alpha": 10}},
            **spec,
        },
    }
