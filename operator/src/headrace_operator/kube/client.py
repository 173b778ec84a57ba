"""The only module that talks to the API server: server-side apply, reads, deletes, status and events.

Every write is one request; a conflict, a refusal or an outage becomes an `ApiError` and nothing is retried
here.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.parse import urlencode

from aiohttp import ClientError
from kubernetes.aio import client, config

from headrace_operator import names
from headrace_operator.api.bodies import Body, JsonObject
from headrace_operator.errors import ApiError
from headrace_operator.kube.kinds import LEASE, Resource, resource
from headrace_operator.metrics import API_REQUESTS

_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"  # merges a pod's conditions by their types
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_TIMEOUT = 30.0  # seconds for one request; far above what a healthy API server needs
_PAGE = 100  # objects; a page is held whole, with the field managers' records that are most of it


class Cluster(Protocol):
    """What the operator does at the API server. Every method raises ApiError."""

    async def read(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """Read the object as it is; None if it does not exist."""

    async def apply(self, manifest: Body, *, dry_run: bool = False) -> JsonObject:
        """Apply our fields on the server's side; returns the object as it is or, with `dry_run`, would be."""

    async def create(self, manifest: Body) -> JsonObject:
        """Create the object; 409 says that there is one of its name."""

    async def apply_status(self, kind: str, namespace: str, name: str, status: Body) -> JsonObject:
        """Apply the status on the server's side."""

    async def annotate(
        self, kind: str, namespace: str, name: str, annotations: Mapping[str, str]
    ) -> JsonObject:
        """Set annotations of an object, and nothing else of it."""

    async def set_condition(
        self, namespace: str, pod: str, uid: str, condition: Mapping[str, str]
    ) -> JsonObject:
        """Set one condition of the pod with this uid."""

    async def scale(self, namespace: str, deployment: str, replicas: int) -> None:
        """Set the replicas of a Deployment, and nothing else of it."""

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete the object if it still has this uid; one that is gone is fine."""

    async def create_event(self, event: Body) -> bool:
        """Record an Event; False if one of that name exists."""

    async def repeat_event(self, namespace: str, name: str, count: int, now: str) -> None:
        """Say that an Event happened again."""


class ApiCluster:
    """`Cluster` over one connection pool. `write_seconds`: for how long it may write, as of now."""

    def __init__(self, api: client.ApiClient, write_seconds: Callable[[], float] = lambda: _TIMEOUT) -> None:
        self._api = api
        self._write_seconds = write_seconds

    async def read(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """Read the object as it is; None if it does not exist."""
        try:
            path = resource(kind).path(namespace, name)
        except ValueError:
            return None
        try:
            return await self._request("GET", path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def apply(self, manifest: Body, *, dry_run: bool = False) -> JsonObject:
        """Apply our fields on the server's side; returns the object as it is or, with `dry_run`, would be."""
        metadata = manifest["metadata"]
        path = resource(manifest["kind"]).path(metadata["namespace"], metadata["name"])
        return await self._request("PATCH", path, manifest, _APPLY, dry_run=dry_run)

    async def create(self, manifest: Body) -> JsonObject:
        """Create the object; 409 says that there is one of its name."""
        path = resource(manifest["kind"]).path(manifest["metadata"]["namespace"])
        return await self._request("POST", path, manifest)

    async def apply_status(self, kind: str, namespace: str, name: str, status: Body) -> JsonObject:
        """Apply the status on the server's side."""
        target = resource(kind)
        body = {
            "apiVersion": target.api_version,
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "status": status,
        }
        return await self._request("PATCH", target.path(namespace, name) + "/status", body, _APPLY)

    async def annotate(
        self, kind: str, namespace: str, name: str, annotations: Mapping[str, str]
    ) -> JsonObject:
        """Set annotations of an object, and nothing else of it."""
        body = {"metadata": {"annotations": dict(annotations)}}
        return await self._request("PATCH", resource(kind).path(namespace, name), body, _MERGE)

    async def set_condition(
        self, namespace: str, pod: str, uid: str, condition: Mapping[str, str]
    ) -> JsonObject:
        """Set one condition of the pod with this uid."""
        body = {"metadata": {"uid": uid}, "status": {"conditions": [dict(condition)]}}
        return await self._request(
            "PATCH", resource("Pod").path(namespace, pod) + "/status", body, _STRATEGIC
        )

    async def scale(self, namespace: str, deployment: str, replicas: int) -> None:
        """Set the replicas of a Deployment, and nothing else of it."""
        path = resource("Deployment").path(namespace, deployment) + "/scale"
        await self._request("PATCH", path, {"spec": {"replicas": replicas}}, _MERGE)

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete the object if it still has this uid; one that is gone is fine."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._request("DELETE", resource(kind).path(namespace, name), body)
        except ApiError as error:
            if error.code not in {404, 409}:  # gone, or another object by now
                raise

    async def create_event(self, event: Body) -> bool:
        """Record an Event; False if one of that name exists."""
        try:
            await self.create(event)
        except ApiError as error:
            if error.code == 409:
                return False
            raise
        return True

    async def repeat_event(self, namespace: str, name: str, count: int, now: str) -> None:
        """Say that an Event happened again."""
        body = {"series": {"count": count, "lastObservedTime": now}}
        await self._request("PATCH", resource("Event").path(namespace, name), body, _MERGE)

    async def write_lease(self, lease: Body) -> JsonObject:
        """Create it, or with a resource version replace exactly that version; 409 says that it is another."""
        metadata = lease["metadata"]
        if "resourceVersion" in metadata:
            path = LEASE.path(metadata["namespace"], metadata["name"])
            return await self._send("PUT", path, lease, _JSON, seconds=_TIMEOUT)
        return await self._send("POST", LEASE.path(metadata["namespace"]), lease, _JSON, seconds=_TIMEOUT)

    async def list_objects(
        self, target: Resource, namespace: str | None, selector: str, *, metadata_only: bool = False
    ) -> AsyncIterator[JsonObject]:
        """Yield all objects of a kind with a label selector, page by page."""
        accept = _METADATA if metadata_only else _JSON
        query = {"limit": str(_PAGE), "labelSelector": selector}
        while True:
            page = await self._request("GET", f"{target.path(namespace)}?{urlencode(query)}", accept=accept)
            for item in page["items"] or ():  # an empty list of metadata has null
                yield {**item, "apiVersion": target.api_version, "kind": target.kind}
            token = page["metadata"].get("continue")
            if not token:
                return
            query["continue"] = token

    async def _request(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        content_type: str = _JSON,
        *,
        accept: str = _JSON,
        dry_run: bool = False,
    ) -> JsonObject:
        seconds = _TIMEOUT if method == "GET" else min(_TIMEOUT, self._write_seconds())
        if seconds <= 0.0:
            raise ApiError(0, f"{method} {path}: not sent, this replica does not hold the Lease")
        return await self._send(
            method, path, body, content_type, accept=accept, dry_run=dry_run, seconds=seconds
        )

    async def _send(
        self,
        method: str,
        path: str,
        body: Body | None,
        content_type: str,
        *,
        accept: str = _JSON,
        dry_run: bool = False,
        seconds: float,
    ) -> JsonObject:
        query = [("fieldManager", names.FIELD_MANAGER), ("force", "true")] if content_type == _APPLY else []
        if content_type in {_MERGE, _STRATEGIC}:
            query = [("fieldManager", names.FIELD_MANAGER)]
        if dry_run:
            query.append(("dryRun", "All"))
        code, retry_after = 0, 0.0
        try:
            request = await self._api.param_serialize(
                method,
                path,
                query_params=query,
                header_params={"Content-Type": content_type, "Accept": accept},
                body=body,
                auth_settings=["BearerToken"],
            )
            response = await self._api.call_api(*request, _request_timeout=seconds)
            code, text = response.status, await response.read()
            retry_after = _seconds(response.headers.get("Retry-After"))
        except (ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, f"{method} {path}: the API server cannot be reached: {error!r}") from error
        finally:
            API_REQUESTS.labels(method, str(code)).inc()
        if code >= 400:
            raise ApiError(code, f"{method} {path}: {_message(text)}", retry_after)
        return dict(json.loads(text))


def _message(text: bytes) -> str:
    """Read what an error says; a proxy on the way may answer in other words than the API server's."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace")[:200]


def _seconds(retry_after: str | None) -> float:
    """Read a Retry-After header; the API server gives whole seconds."""
    return float(retry_after) if retry_after and retry_after.isdigit() else 0.0


@asynccontextmanager
async def connect(write_seconds: Callable[[], float] = lambda: _TIMEOUT) -> AsyncIterator[ApiCluster]:
    """Connect by the pod's service account, or by KUBECONFIG outside a cluster.

    `write_seconds` is asked before each write for how long it may take; 0 or less refuses it.
    """
    settings = client.Configuration()
    # As kopf's watches: no proxies, and no look at ~/.netrc, in a thread, for each request.
    settings.client_session_kwargs = {"trust_env": False}
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=settings)
        else:
            file = os.environ.get("KUBECONFIG")
            await config.load_kube_config(config_file=file, client_configuration=settings)
    except config.ConfigException as error:
        raise ApiError(0, f"no way to the API server: {error}") from error
    async with client.ApiClient(settings) as api:
        yield ApiCluster(api, write_seconds)
