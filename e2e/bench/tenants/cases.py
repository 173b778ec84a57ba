"""What a tenant, or the holder of a stolen token, may ask of the API server; each must be forbidden.

`study` sends them. Objects are Headrace's own but for the one thing that an attack is about.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]

OWNER, TENANT, SYSTEM = "owner", "tenant", "headrace-system"
HEADRACE = "/apis/headrace.dev/v1alpha1"
CORE, APPS = "/api/v1", "/apis/apps/v1"
NETWORK, POLICY = "/apis/networking.k8s.io/v1", "/apis/policy/v1"
SLICES, RBAC = "/apis/discovery.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1"
LEASES, EVENTS = "/apis/coordination.k8s.io/v1", "/apis/events.k8s.io/v1"
RESOURCES = "/apis/resource.k8s.io/v1"
APPLY, MERGE, JSON = "application/apply-patch+yaml", "application/merge-patch+json", "application/json"
MINE = {"app.kubernetes.io/managed-by": "headrace", "headrace.dev/service": "mine"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `who` is `editor`, `owner-of-all` (every verb in the tenant's namespace) or an account."""

    name: str
    who: str
    method: str
    path: str
    body: Body | None = None
    kind: str = JSON


@dataclass(frozen=True, slots=True)
class Known:
    """What an attacker has found out: uids of the tenant's own service, and of the owner's ReplicaSet."""

    service: str
    pod: str
    other_pod: str


def path(root: str, namespace: str, plural: str, name: str = "") -> str:
    """Return the path of an object, or of a list."""
    return f"{root}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def forbidden(known: Known) -> list[Request]:
    """List every request that must be forbidden."""
    return [*_editor(), *_too_wide(), *_operator_objects(known), *_operator_pods(known), *_picker()]


def _apply(who: str, name: str, root: str, plural: str, body: Body) -> Request:
    metadata = body["metadata"]
    where = path(root, metadata["namespace"], plural, metadata["name"])
    return Request(name, who, "PATCH", where + "?fieldManager=headrace-operator&force=true", body, APPLY)


def route(namespace: str, name: str, models: list[str]) -> Body:
    """Return a route with these names."""
    spec = {"models": models, "servedName": name, "balancer": "SAL", "port": 8000, "sidecarPort": 9400}
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "LLMRoute",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def endpoint_slice(address: str) -> Body:
    """Make addresses of a service of the tenant's, said to be one of another."""
    labels = {**MINE, "kubernetes.io/service-name": "mine"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "forged", "namespace": TENANT, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8000, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
    }


def _editor() -> Iterator[Request]:
    routes, services = path(HEADRACE, TENANT, "llmroutes"), path(HEADRACE, TENANT, "llmservices")
    status: Body = {"status": {"conditions": []}}
    deploy = path(APPS, SYSTEM, "deployments", "headrace-operator")
    endpoints = {"metadata": {"name": "mine"}, "subsets": []}
    decoy = {"metadata": {"name": "decoy", "labels": dict(MINE)}, "spec": {"ports": [{"port": 80}]}}
    elsewhere = {"metadata": {"name": "x"}, "spec": {}}
    yield from (
        Request(f"editor: {name}", "editor", *rest)
        for name, *rest in (
            ("create a route", "POST", routes, route(TENANT, "chat", ["chat"])),
            (
                "take a name in one's own route",
                "PATCH",
                f"{routes}/mine",
                {"spec": {"models": ["chat"]}},
                MERGE,
            ),
            ("delete one's own route", "DELETE", f"{routes}/mine"),
            ("write what the picker says", "PATCH", f"{routes}/mine/status", status, MERGE),
            ("write one's own service's status", "PATCH", f"{services}/mine/status", status, MERGE),
            (
                "create an EndpointSlice",
                "POST",
                path(SLICES, TENANT, "endpointslices"),
                endpoint_slice("10.98.0.10"),
            ),
            ("create Endpoints", "POST", path(CORE, TENANT, "endpoints"), endpoints),
            ("create a Service as Headrace's", "POST", path(CORE, TENANT, "services"), decoy),
            (
                "lead one's own Service to other pods",
                "PATCH",
                path(CORE, TENANT, "services", "mine"),
                {"spec": {"selector": {"a": "b"}}},
                MERGE,
            ),
            ("write a pod's status", "PATCH", path(CORE, TENANT, "pods", "x") + "/status", status, MERGE),
            (
                "create a service of another namespace",
                "POST",
                path(HEADRACE, OWNER, "llmservices"),
                elsewhere,
            ),
            (
                "patch another's service",
                "PATCH",
                path(HEADRACE, OWNER, "llmservices", "chat"),
                {"spec": {}},
                MERGE,
            ),
            (
                "patch another's Deployment",
                "PATCH",
                path(APPS, OWNER, "deployments", "chat"),
                {"spec": {}},
                MERGE,
            ),
            (
                "patch another's policy",
                "PATCH",
                path(CORE, OWNER, "configmaps", "chat-policy"),
                {"data": {}},
                MERGE,
            ),
            ("patch the operator", "PATCH", deploy, {"spec": {"replicas": 0}}, MERGE),
            ("read the gateway's Secrets", "GET", path(CORE, SYSTEM, "secrets")),
            (
                "take the operator's Lease",
                "PATCH",
                path(LEASES, SYSTEM, "leases", "headrace-operator"),
                {},
                MERGE,
            ),
            (
                "change an admission policy",
                "DELETE",
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/x",
            ),
            (
                "have a token of the operator",
                "POST",
                path(CORE, SYSTEM, "serviceaccounts", "headrace-operator") + "/token",
                {},
            ),
        )
    )


def _too_wide() -> Iterator[Request]:
    """Try a role that allows everything in a namespace: it still does not lead requests elsewhere."""
    routes = path(HEADRACE, TENANT, "llmroutes")
    taken = {"spec": {"models": ["chat"]}}
    accepted: Body = {"status": {"conditions": []}}
    slices = path(SLICES, TENANT, "endpointslices")
    who = "owner-of-all"
    yield Request("every verb: create a route", who, "POST", routes, route(TENANT, "chat", ["chat"]))
    yield Request("every verb: take a name", who, "PATCH", f"{routes}/mine", taken, MERGE)
    yield Request(
        "every verb: write what the picker says", who, "PATCH", f"{routes}/mine/status", accepted, MERGE
    )
    yield Request("every verb: another's address", who, "POST", slices, endpoint_slice("10.98.0.10"))


def deployment(known: Known, change: Callable[[Body, Body], object] = lambda _all, _pod: None) -> Body:
    """Make a Deployment as Headrace's operator would write it, changed."""
    container = {
        "name": "engine",
        "image": "x",
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    body = owned(known, "apps/v1", "Deployment", "mine-forged")
    pod = {"automountServiceAccountToken": False, "containers": [container]}
    template = {"metadata": {"labels": dict(MINE)}, "spec": pod}
    body["spec"] = {"replicas": 0, "selector": {"matchLabels": dict(MINE)}, "template": template}
    change(body, pod)
    return body


def owned(known: Known, version: str, kind: str, name: str) -> Body:
    """Make an object with labels and owner as Headrace writes them, still without content."""
    owner = {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "LLMService",
        "name": "mine",
        "uid": known.service,
    }
    metadata: Body = {"name": name, "namespace": TENANT, "labels": dict(MINE)}
    metadata["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _container(**context: Any) -> Callable[[Body, Body], object]:
    return lambda _all, pod: pod["containers"][0]["securityContext"].update(context)


def _pod(**fields: Any) -> Callable[[Body, Body], object]:
    return lambda _all, pod: pod.update(fields)


def _volume(**source: Any) -> Callable[[Body, Body], object]:
    return _pod(volumes=[{"name": "v", **source}])


def _metadata(**fields: Any) -> Callable[[Body, Body], object]:
    return lambda body, _pod: body["metadata"].update(fields)


TOKEN = {"serviceAccountToken": {"path": "token"}}
APPARMOR = {"container.apparmor.security.beta.kubernetes.io/engine": "unconfined"}
DEPLOYMENTS: dict[str, Callable[[Body, Body], object]] = {
    "privileged": _container(privileged=True, allowPrivilegeEscalation=True),
    "that gain privilege": lambda _all, pod: pod["containers"][0].pop("securityContext"),
    "with capabilities": _container(capabilities={"add": ["SYS_ADMIN"]}),
    "without seccomp": _container(seccompProfile={"type": "Unconfined"}),
    "without seccomp, all": _pod(securityContext={"seccompProfile": {"type": "Unconfined"}}),
    "with the host's /proc": lambda _all, pod: (
        pod.update(hostUsers=False),
        pod["containers"][0]["securityContext"].update(procMount="Unmasked"),
    ),
    "with sysctls": _pod(securityContext={"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "0"}]}),
    "in the host's network": _pod(hostNetwork=True),
    "in the host's processes": _pod(hostPID=True),
    "in the host's IPC": _pod(hostIPC=True),
    "on a chosen node": _pod(nodeName="control-plane"),
    "with the host's files": _volume(hostPath={"path": "/"}),
    "with a token as volume": _volume(projected={"sources": [TOKEN]}),
    "with another file system": _volume(nfs={"server": "10.0.0.1", "path": "/"}),
    "with a service account": _pod(serviceAccountName="admin"),
    "with the account's token": _pod(automountServiceAccountToken=True),
    "with a port of the host": lambda _all, pod: pod["containers"][0].update(
        ports=[{"containerPort": 80, "hostPort": 80}]
    ),
    "with a privileged init container": lambda _all, pod: pod.update(
        initContainers=[{"name": "i", "image": "x", "securityContext": {"privileged": True}}]
    ),
    "without AppArmor": lambda body, _pod: body["spec"]["template"]["metadata"].update(annotations=APPARMOR),
    "of nobody": _metadata(ownerReferences=[]),
    "without labels": _metadata(labels={}),
    "named after another": _metadata(name="innocent"),
    "in kube-system": _metadata(namespace="kube-system"),
    "in the release's namespace": _metadata(namespace=SYSTEM),
}


def _operator_objects(known: Known) -> Iterator[Request]:
    for name, change in DEPLOYMENTS.items():
        body = deployment(known, change)
        yield _apply("headrace-operator", f"operator's token: Deployments {name}", APPS, "deployments", body)

    def made(name: str, root: str, plural: str, version: str, kind: str, spec: Body) -> Request:  # noqa: PLR0917
        body = {**owned(known, version, kind, "mine-forged"), "spec": spec}
        return _apply("headrace-operator", f"operator's token: {name}", root, plural, body)

    ports = {"ports": [{"port": 80}], "selector": MINE}
    requests = {"requests": [{"name": "all", "exactly": {"deviceClassName": "x", "adminAccess": True}}]}
    yield made(
        "a Service with an address", CORE, "services", "v1", "Service", {**ports, "externalIPs": ["10.0.0.9"]}
    )
    yield made("a Service on each node", CORE, "services", "v1", "Service", {**ports, "type": "NodePort"})
    yield made(
        "a Service of others' pods", CORE, "services", "v1", "Service", {**ports, "selector": {"a": "b"}}
    )
    yield made(
        "a policy for all pods",
        NETWORK,
        "networkpolicies",
        "networking.k8s.io/v1",
        "NetworkPolicy",
        {"podSelector": {}},
    )
    yield made(
        "a budget for all pods",
        POLICY,
        "poddisruptionbudgets",
        "policy/v1",
        "PodDisruptionBudget",
        {"selector": {}},
    )
    yield made(
        "claims of an administrator",
        RESOURCES,
        "resourceclaimtemplates",
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
        {"spec": {"devices": requests}},
    )
    yield made(
        "a claim of an administrator",
        RESOURCES,
        "resourceclaims",
        "resource.k8s.io/v1",
        "ResourceClaim",
        {"devices": requests},
    )
    stolen = route(TENANT, "free", ["chat"])
    yield _apply("headrace-operator", "operator's token: a route of nobody", HEADRACE, "llmroutes", stolen)


def _operator_pods(known: Known) -> Iterator[Request]:
    pod, other = path(CORE, TENANT, "pods", known.pod), path(CORE, TENANT, "pods", known.other_pod)
    foreign = path(CORE, TENANT, "configmaps", "foreign")
    event = {
        "metadata": {"name": "x", "namespace": TENANT},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning",
        "reason": "X",
        "action": "X",
        "reportingController": "headrace.dev/headrace-operator",
        "reportingInstance": "x",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "x", "namespace": TENANT},
    }
    lease = {"metadata": {"name": "kube-scheduler", "namespace": SYSTEM}, "spec": {}}
    refresh = {"metadata": {"annotations": {"headrace.dev/policy-refresh": "x"}}}
    taken = {"metadata": {"labels": dict(MINE)}}
    yield from (
        Request(f"operator's token: {name}", "headrace-operator", *rest)
        for name, *rest in (
            ("another image in a pod", "PATCH", pod, {"spec": {"activeDeadlineSeconds": 1}}, MERGE),
            ("another label of a pod", "PATCH", pod, {"metadata": {"labels": {"a": "b"}}}, MERGE),
            ("another annotation of a pod", "PATCH", pod, {"metadata": {"annotations": {"a": "b"}}}, MERGE),
            ("another state of a pod", "PATCH", f"{pod}/status", {"status": {"reason": "Evicted"}}, MERGE),
            ("an owner less of a pod", "PATCH", pod, {"metadata": {"ownerReferences": None}}, MERGE),
            ("a pod of somebody else", "PATCH", other, refresh, MERGE),
            ("a ConfigMap of somebody else", "PATCH", foreign, {"data": {"a": "c"}}, MERGE),
            ("take a ConfigMap by labels", "PATCH", foreign, copy.deepcopy(taken), MERGE),
            ("delete a ConfigMap of somebody else", "DELETE", foreign),
            ("an Event about somebody else", "POST", path(EVENTS, TENANT, "events"), event),
            ("a Lease of somebody else", "POST", path(LEASES, SYSTEM, "leases"), lease),
            ("read Secrets", "GET", path(CORE, OWNER, "secrets")),
            ("create a pod", "POST", path(CORE, TENANT, "pods"), {}),
            ("delete a Deployment", "DELETE", path(APPS, OWNER, "deployments", "chat")),
            ("grant a role", "POST", path(RBAC, TENANT, "rolebindings"), {}),
            ("change a service", "PATCH", path(HEADRACE, OWNER, "llmservices", "chat"), {"spec": {}}, MERGE),
        )
    )


def _picker() -> Iterator[Request]:
    lease = {"metadata": {"name": "headrace-operator", "namespace": SYSTEM}, "spec": {}}
    routes = path(HEADRACE, OWNER, "llmroutes", "chat")
    yield from (
        Request(f"picker's token: {name}", "headrace-picker", *rest)
        for name, *rest in (
            ("change a route", "PATCH", routes, {"spec": {"models": []}}, MERGE),
            ("create a route", "POST", path(HEADRACE, TENANT, "llmroutes"), route(TENANT, "chat", ["chat"])),
            ("delete a route", "DELETE", routes),
            ("another Lease", "POST", path(LEASES, SYSTEM, "leases"), lease),
            ("read Secrets", "GET", path(CORE, SYSTEM, "secrets")),
            ("read ConfigMaps", "GET", path(CORE, OWNER, "configmaps")),
            ("change a Deployment", "PATCH", path(APPS, OWNER, "deployments", "chat"), {"spec": {}}, MERGE),
        )
    )
