"""Writes Events, one object per thing that happens to a service; repetitions count up."""

from __future__ import annotations

import hashlib
import logging
import os
from datetime import UTC, datetime

from headrace_operator import names
from headrace_operator.api import API_VERSION
from headrace_operator.api.bodies import Body, JsonObject
from headrace_operator.decide.service_events import ServiceEvent
from headrace_operator.errors import ApiError
from headrace_operator.kube.client import Cluster
from headrace_operator.kube.kinds import EVENT

_REMEMBERED = 4096
_INVALID = {400, 422}  # codes by which the API server refuses what is not as it must be

logger = logging.getLogger(__name__)


class EventRecorder:
    """Records happenings. One that the API server does not take is dropped: events only inform."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._counts: dict[str, int] = {}

    async def record(self, service: Body, happened: ServiceEvent) -> None:
        """Write an Event about a raw LLMService or GPUPool, or count up the one that says the same."""
        event = _event(service, happened)
        name, namespace = event["metadata"]["name"], event["metadata"]["namespace"]
        try:
            if await self._cluster.create_event(event):
                self._remember(name, 1)
                return
            count = self._counts.get(name, 1) + 1
            await self._cluster.repeat_event(namespace, name, count, event["eventTime"])
            self._remember(name, count)
        except ApiError as error:
            if error.code in _INVALID:
                logger.warning("an Event was refused: %s", error)

    def _remember(self, name: str, count: int) -> None:
        if len(self._counts) >= _REMEMBERED:
            self._counts.clear()  # counts start over; the events stay
        self._counts[name] = count


def _event(service: Body, happened: ServiceEvent) -> JsonObject:
    metadata = service["metadata"]
    same = f"{metadata['uid']} {happened.reason} {happened.note}"
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {
            "name": f"{metadata['name']}.{hashlib.sha256(same.encode()).hexdigest()[:16]}",
            "namespace": metadata["namespace"],
        },
        "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": "Warning" if happened.warning else "Normal",
        "reason": happened.reason,
        "note": happened.note,
        "action": happened.action,
        "reportingController": f"headrace.dev/{names.FIELD_MANAGER}",
        "reportingInstance": os.environ.get("HOSTNAME") or names.FIELD_MANAGER,
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": service["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
    }
