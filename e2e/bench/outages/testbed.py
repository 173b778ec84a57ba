"""One operator behind a fault proxy, and what is done to it: an outage, or a quarrel with another writer."""

import contextlib
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from e2e import ports
from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.places import REPOSITORY
from e2e.faults import Proxy

Body = dict[str, Any]

_CRDS = REPOSITORY / "crds"
_CRDS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ROOTS = {"llmservices": "/apis/headrace.dev/v1alpha1", "deployments": "/apis/apps/v1"}
_TIMEOUT = 180.0  # seconds until something must have happened
_EDIT_EVERY = 0.05  # seconds

QUARRELS: Mapping[str, tuple[str, str, Callable[[int], Body]]] = {
    "quarrel-deployment": (
        "deployments",
        "",
        lambda n: {"metadata": {"annotations": {"example.com/n": str(n)}}, "spec": {"replicas": 5 + n % 2}},
    ),
    "quarrel-status": ("llmservices", "status", lambda n: {"status": {"replicas": 50 + n % 2}}),
}
"""What another writer changes: which kind, which part of it, and to what the n-th time."""


@dataclass(frozen=True, slots=True)
class Outage:
    """How an outage went; `requests_per_second` is the operator's mean while it lasted."""

    kind: str
    deletions: int
    alive: bool
    same_pods: bool
    requests_per_second: float
    healed_seconds: float


@dataclass(frozen=True, slots=True)
class Quarrel:
    """How a quarrel went; `writes_per_second` are ours to the object that both write."""

    kind: str
    writes_per_second: float
    foreign_kept: bool
    settled_seconds: float


@dataclass(frozen=True, slots=True)
class Testbed:
    """A service in a namespace, its operator, and the proxy between that and the API server."""

    http: httpx.Client
    namespace: str
    proxy: Proxy
    operator: subprocess.Popen[bytes]

    def path(self, plural: str, name: str = "", sub: str = "") -> str:
        """Return the path of an object, or of all of a kind, in the testbed's namespace."""
        root = _ROOTS.get(plural, "/api/v1")
        return "/".join(part for part in (f"{root}/namespaces/{self.namespace}/{plural}", name, sub) if part)

    def get(self, plural: str) -> Body | None:
        """Fetch the service's object of that kind, past the proxy."""
        answer = self.http.get(self.path(plural, "chat"))
        return None if answer.status_code == 404 else _ok(answer)

    def patch(self, plural: str, change: Body, sub: str = "") -> None:
        """Merge a change into the service's object of that kind, past the proxy."""
        headers = {"Content-Type": "application/merge-patch+json"}
        path = self.path(plural, "chat", sub)
        _ok(self.http.patch(path, params={"fieldManager": "other"}, json=change, headers=headers))

    def as_asked(self, replicas: int) -> bool:
        """Tell whether everything is as the spec says, and the status says so."""
        service, deployment = self.get("llmservices") or {}, self.get("deployments")
        status = service.get("status", {})
        accepted = {c["type"]: c["status"] for c in status.get("conditions", ())}.get("Accepted") == "True"
        return bool(
            accepted
            and status.get("observedGeneration") == service["metadata"]["generation"]
            and status.get("replicas", 0) < 50  # what the other writer says
            and deployment
            and deployment["spec"]["replicas"] == replicas
            and self.get("services")
        )


def outage(testbed: Testbed, kind: str, seconds: float) -> Outage:
    """Cut the API server off for so long; meanwhile the service is changed and loses an object."""
    before = testbed.get("deployments") or {}
    began = time.monotonic()
    with testbed.proxy.outage(kind):
        testbed.patch("llmservices", {"spec": {"replicas": 3}})
        _ok(testbed.http.delete(testbed.path("services", "chat")))
        time.sleep(seconds)
        asked = len(testbed.proxy.calls(began))
        lasted = time.monotonic() - began
    healed = _until(lambda: testbed.as_asked(3))
    after = testbed.get("deployments") or {}
    return Outage(
        kind=kind,
        deletions=sum(call.method == "DELETE" for call in testbed.proxy.calls(began)),
        alive=testbed.operator.poll() is None,
        same_pods=_pods(before) == _pods(after),
        requests_per_second=asked / lasted,
        healed_seconds=healed,
    )


def quarrel(testbed: Testbed, kind: str, seconds: float) -> Quarrel:
    """Have another writer change fields of ours for so long."""
    plural, sub, change = QUARRELS[kind]
    path = testbed.path(plural, "chat", sub)
    began = time.monotonic()
    edits = 0
    while time.monotonic() < began + seconds:
        testbed.patch(plural, change(edits), sub)
        edits += 1
        time.sleep(max(0.0, began + edits * _EDIT_EVERY - time.monotonic()))
    lasted = time.monotonic() - began
    written = sum(call.write and call.path == path for call in testbed.proxy.calls(began))
    settled = _until(lambda: testbed.as_asked(2))
    kept = (testbed.get(plural) or {})["metadata"].get("annotations", {}).get("example.com/n")
    return Quarrel(kind, written / lasted, sub != "" or kept == str(edits - 1), settled)


@contextlib.contextmanager
def prepare(control_plane: ControlPlane, name: str, folder: Path) -> Iterator[Testbed]:
    """Make a namespace `name` with a service, and its operator that has carried it out."""
    authority = control_plane.folder / "pki" / "ca.crt"
    with contextlib.ExitStack() as stack:
        http = stack.enter_context(
            httpx.Client(
                base_url=control_plane.url,
                headers={"Authorization": f"Bearer {control_plane.token}"},
                verify=ssl.create_default_context(cafile=str(authority)),
                trust_env=False,
                timeout=60,
            )
        )
        proxy = stack.enter_context(Proxy(control_plane.url, authority, control_plane.token))
        _install_crds(http)
        _ok(http.post("/api/v1/namespaces", json={"metadata": {"name": name}}))
        config = proxy.kubeconfig(folder / f"{name}.kubeconfig")
        testbed = Testbed(
            http, name, proxy, stack.enter_context(_operator(config, name, folder / f"{name}.log"))
        )
        _ok(http.post(testbed.path("llmservices"), json=_service(name)))
        _until(lambda: testbed.as_asked(2))
        yield testbed


_installing = threading.Lock()


def _install_crds(http: httpx.Client) -> None:
    headers = {"Content-Type": "application/apply-patch+yaml"}
    query = {"fieldManager": "other", "force": "true"}
    with _installing:
        for file in _CRDS.glob("*.yaml"):
            path = f"{_CRDS_PATH}/{file.stem}"
            _ok(http.patch(path, params=query, content=file.read_bytes(), headers=headers))
        for plural in ("llmservices", "llmroutes"):
            path = f"/apis/headrace.dev/v1alpha1/{plural}"
            _until(lambda path=path: bool(http.get(path).is_success))  # type: ignore[misc]  # mypy reads no default


@contextlib.contextmanager
def _operator(kubeconfig: Path, namespace: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    (port,) = ports.free(1)
    settings = {
        "KUBECONFIG": str(kubeconfig),
        "HEADRACE_SIDECAR_IMAGE": "example/sidecar:1",
        "HEADRACE_METRICS_PORT": str(port),
        "HEADRACE_WATCH_NAMESPACES": namespace,
        "HEADRACE_SYSTEM_NAMESPACE": namespace,
    }
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "headrace_operator"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **settings}, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _service(namespace: str) -> Body:
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": "chat"},
        "spec": {
            "model": {"source": "pvc://models/tiny", "servedName": namespace},
            "engine": {"image": "example/vllm:1"},
            "accelerator": {"type": "CPU"},
            "replicas": 2,
        },
    }


def _pods(deployment: Body) -> tuple[str, Body]:
    """Return what must stay as it is for the pods to stay."""
    return deployment["metadata"]["uid"], deployment["spec"]["template"]


def _until(holds: Callable[[], object]) -> float:
    """Wait, and say for how long; raises TimeoutError."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() > began + _TIMEOUT:
            raise TimeoutError(f"not within {_TIMEOUT:.0f} s")
        time.sleep(0.1)
    return time.monotonic() - began


def _ok(answer: httpx.Response) -> Body:
    """Return what an answer says that must be a success; raises RuntimeError."""
    if answer.status_code >= 300:
        raise RuntimeError(f"{answer.request.method} {answer.request.url.path}: {answer.text}")
    found: Body = answer.json()
    return found
