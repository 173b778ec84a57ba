"""What the chart's admission policies leave to who holds the operator's token, one request after the other.

RBAC alone allows each of these requests, or it is asked by who may do everything in a namespace.
"""

import copy

import httpx
import op_release
import pytest
from op_admission import probe
from op_kube import Kube, eventually, gpupool, llmservice, ok

from e2e import helm

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]

DRY = {"dryRun": "All"}
OURS = {"app.kubernetes.io/managed-by": "headrace", "headrace.dev/service": "chat"}
LEFT = {**OURS, "headrace.dev/gateway-config": "true"}


@pytest.fixture(scope="module")
def own_token(crd):
    return op_release.token(crd)


@pytest.fixture
def thief(crd, kube, own_token):
    """Requests by the operator's account, in the namespace of `kube`."""
    client = Kube(crd, kube.namespace)
    client.http.headers["Authorization"] = f"Bearer {own_token}"
    nobodys = {"metadata": {"name": "nobodys"}}  # the policies may have been installed just now
    eventually(lambda: forbidden(client.http.post(client.path("configmaps"), params=DRY, json=nobodys)))
    yield client
    client.close()


def forbidden(answer, policy="headrace"):
    """Whether an admission policy of the chart said no, whose name begins so."""
    return answer.status_code == 403 and f"ValidatingAdmissionPolicy '{policy}" in answer.text


def foreign(kube, name="foreign"):
    made = probe("x") | {"metadata": {"name": name, "labels": dict(OURS)}}
    ok(kube.create("deployments", made))


def test_only_deployments_of_headrace_are_scaled(kube, thief, operator):
    kube.start()
    foreign(kube)
    eventually(lambda: kube.get("deployments", "chat"))
    three = {"spec": {"replicas": 3}}
    assert forbidden(thief.patch("deployments", "foreign", three, sub="scale"))
    ok(thief.patch("deployments", "chat", three, sub="scale"))


CONFIG_MAPS = [("chat-gateway", OURS), ("chat-other", LEFT), ("other", {}), ("chat-gateway", LEFT)]


def test_of_config_maps_only_those_of_earlier_releases_are_deleted(kube, thief):
    for name, labels in CONFIG_MAPS:
        ok(kube.create("configmaps", {"metadata": {"name": name, "labels": labels}}))
        goes = (name, labels) == CONFIG_MAPS[-1]
        assert forbidden(thief.delete("configmaps", name)) is not goes
        assert (kube.get("configmaps", name) is None) is goes
        kube.delete("configmaps", name)


def owned_by(owner):
    """Metadata of an object that the operator could have made for it."""
    kind, name = owner["kind"], owner["metadata"]["name"]
    label = "headrace.dev/gpu-pool" if kind == "GPUPool" else "headrace.dev/service"
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": kind,
        "name": name,
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {
        "labels": {"app.kubernetes.io/managed-by": "headrace", label: name},
        "ownerReferences": [reference],
    }


@pytest.mark.parametrize("plural", ["deployments", "services", "networkpolicies", "resourceclaims"])
def test_of_what_runs_only_what_groups_have_is_deleted(kube, thief, plural):
    contents = {
        "deployments": probe("x")["spec"],
        "services": {"ports": [{"port": 9500}]},
        "networkpolicies": {"podSelector": {}},
        "resourceclaims": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "x"}}]}},
    }
    for owners, owner in (("llmservices", llmservice("chat")), ("gpupools", gpupool("shared", g=["chat"]))):
        made = ok(kube.create(owners, owner))  # without its owner, the garbage collector is faster
        metadata = {"name": "owned", **owned_by(made)}
        ok(kube.create(plural, {"metadata": metadata, "spec": contents[plural]}))
        answer = thief.delete(plural, "owned")
        assert forbidden(answer) is (owners == "llmservices")
        assert answer.status_code == (403 if owners == "llmservices" else 200)
        kube.delete(plural, "owned")
        eventually(lambda: kube.get(plural, "owned") is None)


def test_nothing_else_is_deleted(thief):
    for plural in ("llmroutes", "llmservices", "gpupools", "pods", "secrets"):
        answer = thief.delete(plural, "chat")
        assert answer.status_code == 403
        assert f'cannot delete resource "{plural}"' in answer.json()["message"]


PROBE = {"httpGet": {"host": "169.254.169.254", "port": 80, "path": "/"}}
SOCKET = {"tcpSocket": {"host": "10.0.0.1", "port": 80}}
ASKING = [
    {"startupProbe": PROBE},
    {"readinessProbe": SOCKET},
    {"livenessProbe": PROBE},
    {"lifecycle": {"preStop": PROBE}},
    {"lifecycle": {"postStart": SOCKET}},
]


def test_no_node_is_made_to_ask_other_hosts(kube, thief, operator):
    kube.start()
    live = eventually(lambda: kube.get("deployments", "chat"))
    for asking in ASKING:
        changed = copy.deepcopy(live["spec"]["template"])
        changed["spec"]["containers"][0] |= asking
        answer = thief.patch("deployments", "chat", {"spec": {"template": changed}})
        assert forbidden(answer), answer.text
        assert "ask no other host" in answer.text


STATUSES = [
    {"message": "x"},
    {"startTime": "2020-01-01T00:00:00Z"},
    {"nominatedNodeName": "x"},
    {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]},
]


def test_of_a_pods_status_only_the_gate_is_written(kube, thief, operator):
    kube.start()
    pods = eventually(lambda: kube.list("pods", labelSelector="headrace.dev/service"))
    name = pods[0]["metadata"]["name"]
    for status in STATUSES:
        answer = thief.patch("pods", name, {"status": status}, sub="status")
        assert forbidden(answer), (status, answer.text)


@pytest.fixture
def owner_of_all(kube):
    """Who may do everything in the namespace, and nothing outside of it."""
    user = "owner-of-all"
    role = {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    bound = {"kind": "Role", "name": "all", "apiGroup": "rbac.authorization.k8s.io"}
    subjects = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
    where = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{kube.namespace}"
    ok(kube.http.post(f"{where}/roles", json={"metadata": {"name": "all"}, **role}))
    binding = {"metadata": {"name": "all"}, "roleRef": bound, "subjects": subjects}
    ok(kube.http.post(f"{where}/rolebindings", json=binding))
    return {"Impersonate-User": user}


ADDRESSES = {
    "services": {"spec": {"ports": [{"port": 80}], "selector": OURS}},
    "endpoints": {"subsets": []},
    "endpointslices": {"addressType": "IPv4", "endpoints": []},
}


@pytest.mark.parametrize("plural", ADDRESSES)
def test_who_may_do_everything_in_a_namespace_tells_the_gateway_no_address(kube, owner_of_all, plural):
    """Kubernetes makes EndpointSlices of Services and Endpoints, with their labels."""
    root = "/apis/discovery.k8s.io/v1" if plural == "endpointslices" else "/api/v1"

    def made(name, **labels) -> httpx.Response:
        body = {"metadata": {"generateName": name, "labels": labels}, **ADDRESSES[plural]}
        return kube.http.post(f"{root}/namespaces/{kube.namespace}/{plural}", json=body, headers=owner_of_all)

    eventually(lambda: made("plain").status_code == 201)
    eventually(lambda: forbidden(made("chat", **OURS)))  # the policy may have been installed just now


SECOND = "second-headrace-gateway.headrace.dev"
ELSEWHERE = "elsewhere"  # no namespace needs to have that name


def policies_of_second(watched):
    """What a second release brings that tells who may tell its gateway something."""
    manifests = helm.render({"watchNamespaces": [watched]}, release="second")
    for manifest in manifests:
        if manifest["kind"] in op_release.PATHS and manifest["metadata"]["name"] == SECOND:
            yield op_release.PATHS[manifest["kind"]], manifest


def test_a_release_that_serves_other_namespaces_denies_nothing_here(kube, thief, operator):
    kube.start()
    eventually(lambda: kube.get("llmroutes", "chat"))

    def touched():
        return thief.http.patch(
            thief.path("llmroutes", "chat"),
            params=DRY,
            json={"metadata": {"annotations": {"touched": "yes"}}},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    ok(touched())
    made = [(path, ok(kube.http.post(path, json=each))) for path, each in policies_of_second(kube.namespace)]
    try:
        eventually(lambda: forbidden(touched(), SECOND))
        for (path, live), (_, wanted) in zip(made, policies_of_second(ELSEWHERE), strict=True):
            ok(kube.http.put(f"{path}/{live['metadata']['name']}", json=live | {"spec": wanted["spec"]}))
        eventually(lambda: touched().status_code == 200)
    finally:
        for path, live in reversed(made):
            ok(kube.http.delete(f"{path}/{live['metadata']['name']}"))
