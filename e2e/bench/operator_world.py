"""What the operator's benchmark needs around it: an API server, and who plays controllers and nodes.

    ControlPlane (etcd, API server) ◄── Player: a pod for each replica of each Deployment, ready at once, and
           ▲                            a Deployment status that says so; one server answers as every sidecar
           └── operator, its own process

The pods' addresses are loopback ones, each with a socket of its own: others on this machine may use the port.
"""

import asyncio
import itertools
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.places import REPOSITORY
from headrace_engine.contracts import AppliedPolicy, EngineInfo, EngineStatus, dumps

Body = dict[str, Any]

NAMESPACE = "bench"
SIDECAR_PORT = 9400
SERVICES = "/apis/headrace.dev/v1alpha1"
CORE, APPS = "/api/v1", "/apis/apps/v1"
DEFINITIONS = REPOSITORY / "crds"
_MERGE = "application/merge-patch+json"
_MIB = 2**20
_START_SECONDS = 60.0


class ApiError(Exception):
    """A refusal: the request and what the API server said."""


class Api:
    """Requests in the benchmark's namespace, as the cluster's administrator."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def create(self, root: str, plural: str, body: Body, namespace: str | None = NAMESPACE) -> Body:
        """POST."""
        return await self._call("POST", _path(root, plural, namespace=namespace), json=body)

    async def get(self, root: str, plural: str, name: str) -> Body:
        """GET one."""
        return await self._call("GET", _path(root, plural, name))

    async def merge(self, root: str, plural: str, name: str, patch: Body, sub: str = "") -> Body:
        """Merge patch."""
        headers = {"Content-Type": _MERGE}
        return await self._call("PATCH", _path(root, plural, name, sub), json=patch, headers=headers)

    async def replace_spec(self, root: str, plural: str, name: str, spec: Body) -> Body:
        """Put a spec in the place of the one that there is."""
        headers = {"Content-Type": "application/json-patch+json"}
        patch = [{"op": "replace", "path": "/spec", "value": spec}]
        return await self._call("PATCH", _path(root, plural, name), json=patch, headers=headers)

    async def apply(self, root: str, plural: str, name: str, body: Body) -> Body:
        """Server-side apply, as one user does it."""
        headers = {"Content-Type": "application/apply-patch+yaml"}
        query = {"fieldManager": "user", "fieldValidation": "Strict"}
        return await self._call("PATCH", _path(root, plural, name), json=body, params=query, headers=headers)

    async def delete(self, root: str, plural: str, name: str) -> None:
        """DELETE one."""
        await self._call("DELETE", _path(root, plural, name), params={"propagationPolicy": "Background"})

    async def kinds(self) -> list[tuple[str, str]]:
        """Roots and plurals of everything in namespaces that can be listed."""
        groups = (await self._call("GET", "/apis"))["groups"]
        roots = [CORE, *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
        found = [(root, kind) for root in roots for kind in (await self._call("GET", root))["resources"]]
        return [
            (root, kind["name"])
            for root, kind in found
            if kind["namespaced"] and "list" in kind["verbs"] and "/" not in kind["name"]
        ]

    async def list(self, root: str, plural: str) -> list[Body]:
        """All of a kind."""
        return list((await self._call("GET", _path(root, plural)))["items"])

    async def watch(self, root: str, plural: str) -> AsyncGenerator[tuple[str, Body], None]:
        """Types and objects of events, those that exist first; raises ApiError when it ends.

        The first are those of the API server's cache (version 0): a young one would refuse to wait for newer.
        """
        path, query = _path(root, plural), {"watch": "true", "resourceVersion": "0"}
        async with self._session.get(path, params=query, timeout=_NO_LIMIT) as answer:
            answer.raise_for_status()
            buffer = b""
            async for chunk in answer.content.iter_any():
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise ApiError(f"watch of {path}: {event['object']}")
                    yield event["type"], event["object"]
        raise ApiError(f"the watch of {path} ended")

    async def install(self) -> None:
        """The definitions, the namespace, and what its pods need."""
        headers = {"Content-Type": "application/apply-patch+yaml"}
        query = {"fieldManager": "bench", "force": "true"}
        for file in DEFINITIONS.glob("*.yaml"):
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{file.stem}"
            await self._call("PATCH", path, data=file.read_bytes(), params=query, headers=headers)
        await self.create(CORE, "namespaces", {"metadata": {"name": NAMESPACE}}, namespace=None)
        await self.create(CORE, "serviceaccounts", {"metadata": {"name": "default"}})
        async with asyncio.timeout(_START_SECONDS):
            while True:
                try:
                    await self.list(SERVICES, "llmservices")
                    await self.list(SERVICES, "llmroutes")
                except ApiError:
                    await asyncio.sleep(0.1)
                else:
                    return

    async def _call(self, method: str, path: str, **options: Any) -> Body:
        async with self._session.request(method, path, **options) as answer:
            if not answer.ok:
                raise ApiError(f"{method} {path}: {answer.status} {await answer.text()}")
            return dict(await answer.json())


@asynccontextmanager
async def connect(plane: ControlPlane) -> AsyncIterator[Api]:
    """An Api of this control plane."""
    tls = ssl.create_default_context(cafile=str(plane.folder / "pki" / "ca.crt"))
    headers = {"Authorization": f"Bearer {plane.token}"}
    connector = aiohttp.TCPConnector(ssl=tls, limit=0)
    async with aiohttp.ClientSession(plane.url, headers=headers, connector=connector) as session:
        yield Api(session)


class Player:
    """Plays the Deployment controller, the kubelets and the sidecars."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._numbers = itertools.count(1)
        self._pods: dict[str, list[str]] = {}  # by Deployment
        self._policy = ""  # hash; the services of the benchmark share their policy
        self._sidecars = web.AppRunner(self._app(), access_log=None)
        self.seen: dict[str, Body] = {}  # last Deployments, by name
        self.changed = asyncio.Condition()

    async def run(self) -> None:
        """Until it is cancelled."""
        runner = self._sidecars
        await runner.setup()
        try:
            async with asyncio.TaskGroup() as tasks:
                async for kind, live in self._api.watch(APPS, "deployments"):
                    if kind in {"ADDED", "MODIFIED"}:
                        async with self.changed:
                            self.seen[live["metadata"]["name"]] = live
                            self.changed.notify_all()
                        tasks.create_task(self._tend(live))
        finally:
            await runner.cleanup()

    def pods(self) -> list[str]:
        """Names of all pods."""
        return [pod for pods in self._pods.values() for pod in pods]

    async def _tend(self, live: Body) -> None:
        """Its pods and its status, if they are not yet as they should be."""
        name, generation = live["metadata"]["name"], live["metadata"]["generation"]
        pods = self._pods.setdefault(name, [])
        wanted = live["spec"]["replicas"] - len(pods)
        numbers = [next(self._numbers) for _ in range(wanted)]
        pods += [f"{name}-{number}" for number in numbers]
        owners = await self._replica_set(live) if numbers else []
        for number in numbers:
            await self._start(f"{name}-{number}", number, live["spec"]["template"], name, owners)
        if live.get("status", {}).get("observedGeneration") != generation:
            counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
            status = {"observedGeneration": generation, **dict.fromkeys(counts, len(pods))}
            await self._api.merge(APPS, "deployments", name, {"status": status}, "status")

    async def _replica_set(self, live: Body) -> list[Body]:
        """Make the Deployment's ReplicaSet; what its pods say of it."""
        name = f"{live['metadata']['name']}-1"
        spec = {"replicas": 0, **{key: live["spec"][key] for key in ("selector", "template")}}
        labels = live["spec"]["template"]["metadata"]["labels"]
        owners = [_owner("Deployment", live)]
        body = {"metadata": {"name": name, "labels": labels, "ownerReferences": owners}, "spec": spec}
        return [_owner("ReplicaSet", await self._api.create(APPS, "replicasets", body))]

    async def _start(self, pod: str, number: int, template: Body, service: str, owners: list[Body]) -> None:
        if not self._policy:
            config = await self._api.get(CORE, "configmaps", f"{service}-policy")
            self._policy = json.loads(config["data"]["policy.json"])["hash"]
        metadata = {**template["metadata"], "name": pod, "ownerReferences": owners}
        body = {"metadata": metadata, "spec": template["spec"]}
        await self._api.create(CORE, "pods", body)
        address = f"127.{20 + number // 62_500}.{number // 250 % 250}.{number % 250 + 1}"
        await web.TCPSite(self._sidecars, address, SIDECAR_PORT).start()
        await self._api.merge(CORE, "pods", pod, {"status": _ready(address)}, "status")

    def _app(self) -> web.Application:
        async def status(_: web.Request) -> web.Response:
            policy = AppliedPolicy("FCFS", self._policy)
            told = EngineStatus("0.1.0", ("FCFS",), 1, EngineInfo("Idle", vllm_version="0.32.0"), policy)
            return web.Response(text=dumps(told), content_type="application/json")

        app = web.Application()
        app.router.add_get("/status", status)
        return app


class Operator:
    """The operator as a process of its own."""

    def __init__(self, plane: ControlPlane, session: aiohttp.ClientSession) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        self._http = session
        self._log = plane.folder / "operator.log"
        settings = {
            "KUBECONFIG": str(plane.kubeconfig),
            "HEADRACE_SIDECAR_IMAGE": "example/sidecar:1",
            "HEADRACE_SYSTEM_NAMESPACE": NAMESPACE,
            "HEADRACE_METRICS_PORT": str(self._port),
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace_operator"],
                env={**os.environ, **settings},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    async def __aenter__(self) -> Self:
        async with asyncio.timeout(_START_SECONDS):
            while True:
                if await self._answers("/readyz"):
                    return self
                await asyncio.sleep(0.1)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        await asyncio.to_thread(self._process.wait, 60)

    async def total(self, metric: str, **labels: str) -> float:
        """Sum of the samples of a metric that have these labels."""
        async with self._http.get(f"http://127.0.0.1:{self._port}/metrics") as answer:
            text = await answer.text()
        wanted = [f'{name}="{value}"' for name, value in labels.items()]
        lines = [line for line in text.splitlines() if line.startswith((metric + "{", metric + " "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(part in line for part in wanted))

    async def writes(self) -> float:
        """How often it has written anything but its Lease (the only thing that it puts)."""
        name = "headrace_operator_api_requests_total"
        return sum([await self.total(name, verb=verb) for verb in ("PATCH", "POST", "DELETE")])

    def memory(self, field: str = "VmRSS") -> float:
        """Resident memory in MiB; `VmHWM` is the highest so far."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(field + ":")).split()[1]) * 1024 / _MIB

    async def _answers(self, path: str) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"the operator ended:\n{self._log.read_text()[-4000:]}")
        try:
            async with self._http.get(f"http://127.0.0.1:{self._port}{path}") as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False


def service(number: int) -> Body:
    """LLMService `s<number>`, with one replica."""
    return {
        "apiVersion": "headrace.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": f"s{number}"},
        "spec": {
            "model": {"source": "hf://example/model", "servedName": f"model-{number}"},
            "engine": {"image": "example/vllm:1"},
            "accelerator": {"type": "GPU"},
            "scheduling": {"policy": "FCFS"},
        },
    }


def _owner(kind: str, made_for: Body) -> Body:
    metadata = made_for["metadata"]
    named = {"apiVersion": "apps/v1", "kind": kind, "name": metadata["name"], "uid": metadata["uid"]}
    return {**named, "controller": True, "blockOwnerDeletion": True}


def _ready(address: str) -> Body:
    since = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": since} for kind in ("PodScheduled", "Ready")
    ]
    engine = {
        "name": "engine",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "image": "i",
        "imageID": "i",
    }
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": conditions,
        "containerStatuses": [{**engine, "state": {"running": {"startedAt": since}}}],
    }


def _path(root: str, plural: str, name: str = "", sub: str = "", namespace: str | None = NAMESPACE) -> str:
    scope = f"namespaces/{namespace}" if namespace else ""
    return "/".join(part for part in (root, scope, plural, name, sub) if part)


_NO_LIMIT = aiohttp.ClientTimeout(total=None)


def holds(body: Mapping[str, Any], kind: str) -> bool:
    """Whether a service's condition is true."""
    told = (body.get("status") or {}).get("conditions") or ()
    return any(c["type"] == kind and c["status"] == "True" for c in told)
