"""From raw cluster objects to what the operator decides by: owned objects, pods, their sidecars' reports.

Pure. A pod that does not serve has a `Problem`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headrace_engine.contracts import EngineStatus
from headrace_operator import names
from headrace_operator.api.bodies import Body, is_ending
from headrace_operator.decide.crashes import Crash, crash_reported_until, read_crash
from headrace_operator.decide.pod_problems import (
    Problem,
    awaits_route,
    container_statuses,
    engine_container_status,
    find_problem,
    pod_condition,
    shorten,
)


@dataclass(frozen=True, slots=True)
class SidecarReport:
    """What a pod's sidecar said last; no status and an `error` when it cannot be reached."""

    status: EngineStatus | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """One engine pod that is not on its way out."""

    name: str
    uid: str
    ip: str
    ready: bool
    policy_refresh: str  # value of the policy-refresh annotation
    problem: Problem | None
    awaits_route: bool = False  # its readiness gate is still to be opened
    inputs: str = ""  # hash of what of the spec it was made from
    restarts: int = 0  # of its container that restarted most
    load_seconds: int = 0  # from its engine's start until it was ready; 0: it is not
    crash: Crash | None = None  # of its engine, the last one
    crash_reported_until: float = 0.0  # unix seconds


@dataclass(frozen=True, slots=True)
class Observation:
    """What is there of one service."""

    objects: Mapping[tuple[str, str], Body] = field(default_factory=dict)  # (kind, name) → object
    pods: tuple[Pod, ...] = ()
    reports: Mapping[str, SidecarReport] = field(default_factory=dict)  # pod uid → report
    failed: str = ""  # what became of the pod that was evicted or refused by its node last

    @property
    def ready(self) -> tuple[Pod, ...]:
        """Pods that serve."""
        return tuple(pod for pod in self.pods if pod.ready)

    def report(self, pod: Pod) -> SidecarReport:
        """Return the pod's report; empty before the first."""
        return self.reports.get(pod.uid, SidecarReport())

    def deployment(self, name: str) -> Body | None:
        """Return the live Deployment; None if there is none."""
        return self.objects.get(("Deployment", name))


def observe(owned: Iterable[Body], pods: Iterable[Body], reports: Mapping[str, SidecarReport]) -> Observation:
    """Sort what the cluster holds; pods by name, terminating and finished ones left out."""
    pods = tuple(pods)
    staying = [pod for pod in pods if not (has_ended(pod) or is_ending(pod))]
    return Observation(
        objects={(item["kind"], item["metadata"]["name"]): item for item in owned},
        pods=tuple(sorted((_pod(pod, reports) for pod in staying), key=lambda pod: pod.name)),
        reports=reports,
        failed=_failed(pods),
    )


def _failed(pods: Iterable[Body]) -> str:
    """Explain why a node gave up the newest of such pods, with the node's own reason; empty if none was."""
    failed = [pod for pod in pods if pod.get("status", {}).get("phase") == "Failed"]
    told = [pod for pod in failed if pod["status"].get("reason")]
    if not told:
        return ""
    pod = max(told, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
    why = f"{pod['status']['reason']}: {shorten(pod['status'].get('message', ''))}"
    return f"{pod['metadata']['name']}, made {pod['metadata'].get('creationTimestamp', '')}, failed: {why}"


def has_ended(pod: Body) -> bool:
    """Tell whether nothing of a pod runs any more."""
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def _pod(raw: Body, reports: Mapping[str, SidecarReport]) -> Pod:
    metadata, status = raw["metadata"], raw.get("status", {})
    readiness, engine = pod_condition(status, "Ready"), engine_container_status(status)
    ready = readiness.get("status") == "True"
    annotations = metadata.get("annotations") or {}
    crash = read_crash(engine) if engine else None
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        ip="" if raw.get("spec", {}).get("hostNetwork") else status.get("podIP", ""),  # that is its node's
        ready=ready,
        awaits_route=awaits_route(raw),
        policy_refresh=annotations.get(names.POLICY_REFRESH, ""),
        problem=None if ready else find_problem(raw, _phase(engine, reports.get(metadata["uid"]))),
        inputs=annotations.get(names.INPUTS_HASH, ""),
        restarts=max((c.get("restartCount", 0) for c in container_statuses(status)), default=0),
        load_seconds=_load_seconds(status) if ready else 0,
        crash=crash,
        crash_reported_until=crash_reported_until(crash, readiness.get("lastTransitionTime") or "")
        if crash
        else 0.0,
    )


def _phase(engine: Body, report: SidecarReport | None) -> str:
    """Return what a starting engine says that it does; what one before it said in this pod does not count."""
    started = engine.get("state", {}).get("running", {}).get("startedAt")
    if not started or report is None or report.status is None:
        return ""
    told = report.status.engine
    return told.phase if told.phase_since >= datetime.fromisoformat(started).timestamp() else ""


def _load_seconds(status: Body) -> int:
    """Return the seconds from the engine's start to the pod's readiness."""
    started = engine_container_status(status).get("state", {}).get("running", {}).get("startedAt")
    ready = pod_condition(status, "Ready").get("lastTransitionTime")
    if not started or not ready:
        return 0
    return max(0, round((datetime.fromisoformat(ready) - datetime.fromisoformat(started)).total_seconds()))
