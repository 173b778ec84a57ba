"""Requests of the cluster's administrator to the API server, in the benchmarks' namespace."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from e2e.cluster.control_plane import ControlPlane
from e2e.cluster.places import REPOSITORY

Body = dict[str, Any]

NAMESPACE = "bench"
SERVICES = "/apis/headrace.dev/v1alpha1"
CORE, APPS = "/api/v1", "/apis/apps/v1"
DEFINITIONS = REPOSITORY / "crds"
_MERGE = "application/merge-patch+json"
START_SECONDS = 60.0


class ApiError(Exception):
    """A refusal: the request and what the API server said."""


class Api:
    """Requests in the benchmark's namespace, as the cluster's administrator."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def create(self, root: str, plural: str, body: Body, namespace: str | None = NAMESPACE) -> Body:
        """Create an object with POST."""
        return await self._call("POST", _path(root, plural, namespace=namespace), json=body)

    async def get(self, root: str, plural: str, name: str) -> Body:
        """Read one object with GET."""
        return await self._call("GET", _path(root, plural, name))

    async def merge(self, root: str, plural: str, name: str, patch: Body, sub: str = "") -> Body:
        """Change an object by a merge patch."""
        headers = {"Content-Type": _MERGE}
        return await self._call("PATCH", _path(root, plural, name, sub), json=patch, headers=headers)

    async def replace_spec(self, root: str, plural: str, name: str, spec: Body) -> Body:
        """Put a spec in the place of the one that there is."""
        headers = {"Content-Type": "application/json-patch+json"}
        patch = [{"op": "replace", "path": "/spec", "value": spec}]
        return await self._call("PATCH", _path(root, plural, name), json=patch, headers=headers)

    async def apply(self, root: str, plural: str, name: str, body: Body) -> Body:
        """Apply on the server's side, as one user does it."""
        headers = {"Content-Type": "application/apply-patch+yaml"}
        query = {"fieldManager": "user", "fieldValidation": "Strict"}
        return await self._call("PATCH", _path(root, plural, name), json=body, params=query, headers=headers)

    async def delete(self, root: str, plural: str, name: str) -> None:
        """Delete one object, its dependents in the background."""
        await self._call("DELETE", _path(root, plural, name), params={"propagationPolicy": "Background"})

    async def kinds(self) -> list[tuple[str, str]]:
        """Return roots and plurals of everything in namespaces that can be listed."""
        groups = (await self._call("GET", "/apis"))["groups"]
        roots = [CORE, *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
        found = [(root, kind) for root in roots for kind in (await self._call("GET", root))["resources"]]
        return [
            (root, kind["name"])
            for root, kind in found
            if kind["namespaced"] and "list" in kind["verbs"] and "/" not in kind["name"]
        ]

    async def list(self, root: str, plural: str) -> list[Body]:
        """List all objects of a kind."""
        return list((await self._call("GET", _path(root, plural)))["items"])

    async def watch(self, root: str, plural: str) -> AsyncGenerator[tuple[str, Body], None]:
        """Yield types and objects of events, those that exist first; raises ApiError when it ends.

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
        """Install the definitions, the namespace, and what its pods need."""
        headers = {"Content-Type": "application/apply-patch+yaml"}
        query = {"fieldManager": "bench", "force": "true"}
        for file in DEFINITIONS.glob("*.yaml"):
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{file.stem}"
            await self._call("PATCH", path, data=file.read_bytes(), params=query, headers=headers)
        await self.create(CORE, "namespaces", {"metadata": {"name": NAMESPACE}}, namespace=None)
        await self.create(CORE, "serviceaccounts", {"metadata": {"name": "default"}})
        async with asyncio.timeout(START_SECONDS):
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
    """Connect to this control plane."""
    tls = ssl.create_default_context(cafile=str(plane.folder / "pki" / "ca.crt"))
    headers = {"Authorization": f"Bearer {plane.token}"}
    connector = aiohttp.TCPConnector(ssl=tls, limit=0)
    async with aiohttp.ClientSession(plane.url, headers=headers, connector=connector) as session:
        yield Api(session)


def _path(root: str, plural: str, name: str = "", sub: str = "", namespace: str | None = NAMESPACE) -> str:
    scope = f"namespaces/{namespace}" if namespace else ""
    return "/".join(part for part in (root, scope, plural, name, sub) if part)


_NO_LIMIT = aiohttp.ClientTimeout(total=None)
