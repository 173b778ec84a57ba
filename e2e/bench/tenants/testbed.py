"""A cluster for `tenants`: the chart on a real API server; operator, picker and Envoy by their own accounts.

There is no kubelet: pods get their addresses here.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp

from e2e import helm
from e2e.bench.gateway.testbed import HOST
from e2e.bench.gateway.testbed import Testbed as GatewayTestbed
from e2e.bench.gateway.testbed import start_testbed as start_gateway
from e2e.bench.tenants.cases import (
    CORE,
    HEADRACE,
    JSON,
    MERGE,
    OWNER,
    RBAC,
    SYSTEM,
    TENANT,
    Request,
    path,
)
from e2e.cluster.control_plane import WORKLOADS, ControlPlane

CONTROLLERS = (*WORKLOADS, "clusterrole-aggregation-controller")
NODE = "node"
USERS = {"editor": "mallory", "owner-of-all": "trudy"}
_PICKER = """
import uvloop
from headrace_gateway.__main__ import main
from headrace_gateway.settings import Settings
uvloop.run(main(Settings(
    lease="headrace-picker", pod_namespace="headrace-system", pod_name="picker-0",
    address="127.0.0.1", ads_port={ads}, picks_port={picks}, http_port={http},
)))
"""
_RUNNING = {"name": "engine", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "ready": True}
_TIMEOUT = 90.0  # seconds

Body = dict[str, Any]
T = TypeVar("T")


class NeverError(RuntimeError):
    """What was waited for did not come; the message says what."""


@dataclass(slots=True)
class Testbed:
    """What the campaign acts on."""

    plane: ControlPlane
    gateway: GatewayTestbed
    http: aiohttp.ClientSession
    tokens: dict[str, str]  # of accounts

    async def send(self, request: Request) -> tuple[int, Body]:
        """Send a tenant's or a thief's request; returns the API server's answer."""
        if request.who in USERS:
            headers = {"Authorization": f"Bearer {self.plane.token}", "Impersonate-User": USERS[request.who]}
        else:
            headers = {"Authorization": f"Bearer {self.tokens[request.who]}"}
        return await self._call(request.method, request.path, request.body, request.kind, headers)

    async def admin(self, method: str, where: str, body: Body | None = None, kind: str = JSON) -> Body:
        """Send the administrator's request; returns the answer, raises NeverError if it is an error."""
        headers = {"Authorization": f"Bearer {self.plane.token}"}
        status, answer = await self._call(method, where, body, kind, headers)
        if status >= 300 and status != 404:
            raise NeverError(f"{method} {where}: {status} {answer.get('message')}")
        return answer

    async def _call(
        self, method: str, where: str, body: Body | None, kind: str, headers: dict[str, str]
    ) -> tuple[int, Body]:
        data = None if body is None else json.dumps(body)
        headers = {**headers, "Content-Type": kind}
        async with self.http.request(method, where, data=data, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)

    async def start_pod(self, service: str, namespace: str, address: str) -> Body:
        """Wait for the service's pod and give it an address, as its kubelet would; the pod."""

        async def first() -> Body:
            query = f"?labelSelector=headrace.dev/service={service}"
            found = await self.admin("GET", path(CORE, namespace, "pods") + query)
            return next((each for each in found["items"] if each["metadata"].get("ownerReferences")), {})

        pod = await until(first, f"pod of {namespace}/{service}")
        await self.place(namespace, pod["metadata"]["name"], address)
        return pod

    async def place(self, namespace: str, name: str, address: str) -> None:
        """Have a pod run on the node, and be ready at this address."""
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        await self.admin(
            "POST",
            path(CORE, namespace, "pods", name) + "/binding",
            {"metadata": {"name": name}, "target": target},
        )
        conditions = [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")]
        containers = [{**_RUNNING, "started": True, "restartCount": 0, "image": "x", "imageID": "x"}]
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}
        body = {"status": {**status, "containerStatuses": containers}}
        await self.admin("PATCH", path(CORE, namespace, "pods", name) + "/status", body, MERGE)

    async def condition(self, namespace: str, service: str, kind: str) -> dict[str, str]:
        """Return a condition of a service; empty before there is one."""
        body = await self.admin("GET", path(HEADRACE, namespace, "llmservices", service))
        told = body.get("status", {}).get("conditions", [])
        return next((each for each in told if each["type"] == kind), {})


async def until(check: Callable[[], Awaitable[T]], what: str, seconds: float = _TIMEOUT) -> T:
    """Wait for the first true value of `check`; raises NeverError."""
    try:
        async with asyncio.timeout(seconds):
            while not (value := await check()):  # noqa: ASYNC110 what is waited for has no event
                await asyncio.sleep(0.1)
            return value
    except TimeoutError as error:
        raise NeverError(f"there was no {what} within {seconds:g} s") from error


@asynccontextmanager
async def start_testbed(folder: Path) -> AsyncIterator[Testbed]:
    """Start everything but pods and LLMServices."""
    with ControlPlane(CONTROLLERS) as plane, start_gateway(folder) as made:
        flags = ("--namespace", helm.NAMESPACE, "--create-namespace")
        await asyncio.to_thread(
            helm.helm, "install", helm.RELEASE, str(helm.CHART), *flags, kubeconfig=plane.kubeconfig
        )
        tls = ssl.create_default_context(cafile=str(plane.folder / "pki" / "ca.crt"))
        connector = aiohttp.TCPConnector(ssl=tls)
        async with aiohttp.ClientSession(plane.url, connector=connector) as http:
            it = Testbed(plane, made, http, {})
            await _people(it)
            for account in ("headrace-operator", "headrace-picker"):
                where = path(CORE, SYSTEM, "serviceaccounts", account) + "/token"
                it.tokens[account] = (await it.admin("POST", where, {"spec": {}}))["status"]["token"]
            _start(it, folder)
            yield it


async def _people(it: Testbed) -> None:
    """Make a node, the namespaces, and who may do what in them."""
    await it.admin("POST", f"{CORE}/nodes", {"metadata": {"name": NODE}})
    for namespace in (OWNER, TENANT):
        await it.admin("POST", f"{CORE}/namespaces", {"metadata": {"name": namespace}})

        async def account(namespace: str = namespace) -> bool:
            return "metadata" in await it.admin("GET", path(CORE, namespace, "serviceaccounts", "default"))

        await until(account, "account for pods")
    every = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    await it.admin("POST", path(RBAC, TENANT, "roles"), {"metadata": {"name": "all"}, "rules": [every]})
    for user, kind, role in (("editor", "ClusterRole", "edit"), ("owner-of-all", "Role", "all")):
        await it.admin(
            "POST",
            path(RBAC, TENANT, "rolebindings"),
            {
                "metadata": {"name": user},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
                "subjects": [{"kind": "User", "name": USERS[user], "apiGroup": "rbac.authorization.k8s.io"}],
            },
        )


def _start(it: Testbed, folder: Path) -> None:
    """Start operator, picker and Envoy."""
    operator = {
        "HEADRACE_SIDECAR_IMAGE": "sidecar",
        "HEADRACE_METRICS_PORT": str(it.gateway.ports["plain"]),
        "HEADRACE_SYSTEM_NAMESPACE": SYSTEM,
    }
    ports = {name: it.gateway.ports[name] for name in ("ads", "picks", "http")}
    commands = {
        "operator": (["-m", "headrace_operator"], operator),
        "picker": (["-c", _PICKER.format(**ports)], {}),
    }
    for name, (command, settings) in commands.items():
        config = folder / f"{name}.kubeconfig"
        config.write_text(json.dumps(_kubeconfig(it.plane, it.tokens[f"headrace-{name}"])))
        environment = {**os.environ, **settings, "KUBECONFIG": str(config)}
        with (folder / f"{name}.log").open("ab") as log:
            it.gateway.processes[name] = subprocess.Popen(
                [sys.executable, *command], env=environment, stdout=log, stderr=log
            )
    it.gateway.start_envoy()


def _kubeconfig(plane: ControlPlane, token: str) -> Body:
    cluster = {"server": plane.url, "certificate-authority": str(plane.folder / "pki" / "ca.crt")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": HOST, "cluster": cluster}],
        "users": [{"name": HOST, "user": {"token": token}}],
        "contexts": [{"name": HOST, "context": {"cluster": HOST, "user": HOST}}],
        "current-context": HOST,
    }
