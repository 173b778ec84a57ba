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
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from e2e import ports
from e2e.bench.operator.api import APPS, CORE, NAMESPACE, START_SECONDS, Api, Body
from e2e.cluster.control_plane import ControlPlane
from headrace_engine.contracts import AppliedPolicy, EngineInfo, EngineStatus, dumps

SIDECAR_PORT = 9400
_MIB = 2**20


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
        """Play all of them until it is cancelled."""
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
        """List the names of all pods."""
        return [pod for pods in self._pods.values() for pod in pods]

    async def _tend(self, live: Body) -> None:
        """Tend a Deployment's pods and its status, if they are not yet as they should be."""
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
        (self._port,) = ports.free(1)
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
        async with asyncio.timeout(START_SECONDS):
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
        """Add up the samples of a metric that have these labels."""
        async with self._http.get(f"http://127.0.0.1:{self._port}/metrics") as answer:
            text = await answer.text()
        wanted = [f'{name}="{value}"' for name, value in labels.items()]
        lines = [line for line in text.splitlines() if line.startswith((metric + "{", metric + " "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(part in line for part in wanted))

    async def writes(self) -> float:
        """Return how often it has written anything but its Lease (the only thing that it puts)."""
        name = "headrace_operator_api_requests_total"
        return sum([await self.total(name, verb=verb) for verb in ("PATCH", "POST", "DELETE")])

    def memory(self, field: str = "VmRSS") -> float:
        """Return resident memory in MiB; `VmHWM` is the highest so far."""
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
    """Return LLMService `s<number>`, with one replica."""
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


def holds(body: Mapping[str, Any], kind: str) -> bool:
    """Tell whether a service's condition is true."""
    told = (body.get("status") or {}).get("conditions") or ()
    return any(c["type"] == kind and c["status"] == "True" for c in told)
