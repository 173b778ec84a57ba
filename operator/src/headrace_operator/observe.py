"""From raw cluster objects to what the operator decides by: owned objects, pods, their sidecars' reports.

Pure. A pod that does not serve has a `Problem`: the condition reason and a sentence that names what is
missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headrace_engine.contracts import EngineStatus
from headrace_operator import names
from headrace_operator.api import RESERVED_VOLUMES, Reason

Raw = Mapping[str, Any]

_MISSING_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_MISSING_OBJECT = re.compile(r"(secret|configmap) \"?([^\" ]+)\"? not found|couldn't find key", re.IGNORECASE)
_PULL_FAILURES = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
}
_NOT_CREATED = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_MESSAGE_LIMIT = 600


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pod does not serve."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Report:
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
    nudge: str  # value of the policy-nudge annotation
    problem: Problem | None
    inputs: str = ""  # hash of what of the spec it was made from
    restarts: int = 0  # of its container that restarted most
    load_seconds: int = 0  # from its engine's start until it was ready; 0: it is not


@dataclass(frozen=True, slots=True)
class Observed:
    """What is there of one service."""

    objects: Mapping[tuple[str, str], Raw] = field(default_factory=dict)  # (kind, name) → object
    pods: tuple[Pod, ...] = ()
    reports: Mapping[str, Report] = field(default_factory=dict)  # pod uid → report
    failed: str = ""  # what became of the pod that was evicted or refused by its node last

    @property
    def ready(self) -> tuple[Pod, ...]:
        """Pods that serve."""
        return tuple(pod for pod in self.pods if pod.ready)

    def report(self, pod: Pod) -> Report:
        """The pod's report; empty before the first."""
        return self.reports.get(pod.uid, Report())

    def deployment(self, name: str) -> Raw | None:
        """The live Deployment."""
        return self.objects.get(("Deployment", name))


def observe(owned: Iterable[Raw], pods: Iterable[Raw], reports: Mapping[str, Report]) -> Observed:
    """Sort what the cluster holds; pods by name, terminating and finished ones left out."""
    pods = tuple(pods)
    staying = [pod for pod in pods if not _leaving(pod)]
    return Observed(
        objects={(item["kind"], item["metadata"]["name"]): item for item in owned},
        pods=tuple(sorted(map(_pod, staying), key=lambda pod: pod.name)),
        reports=reports,
        failed=_failed(pods),
    )


def _failed(pods: Iterable[Raw]) -> str:
    """Of the newest pod that its node gave up, with a reason of the node's own; empty if there is none."""
    failed = [pod for pod in pods if pod.get("status", {}).get("phase") == "Failed"]
    told = [pod for pod in failed if pod["status"].get("reason")]
    if not told:
        return ""
    pod = max(told, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
    why = f"{pod['status']['reason']}: {_short(pod['status'].get('message', ''))}"
    return f"{pod['metadata']['name']}, made {pod['metadata'].get('creationTimestamp', '')}, failed: {why}"


def _leaving(pod: Raw) -> bool:
    finished = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
    return finished or "deletionTimestamp" in pod["metadata"]


def _pod(raw: Raw) -> Pod:
    metadata, status = raw["metadata"], raw.get("status", {})
    ready = _condition(status, "Ready").get("status") == "True"
    annotations = metadata.get("annotations") or {}
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        ip="" if raw.get("spec", {}).get("hostNetwork") else status.get("podIP", ""),  # that is its node's
        ready=ready,
        nudge=annotations.get(names.POLICY_NUDGE, ""),
        problem=None if ready else _problem(raw),
        inputs=annotations.get(names.INPUTS_HASH, ""),
        restarts=max((c.get("restartCount", 0) for c in _containers(status)), default=0),
        load_seconds=_load_seconds(status) if ready else 0,
    )


def _containers(status: Raw) -> list[Raw]:
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def _load_seconds(status: Raw) -> int:
    """Between the engine's start and the pod's readiness."""
    engine: Raw = next((c for c in _containers(status) if c["name"] == names.ENGINE), {})
    started = engine.get("state", {}).get("running", {}).get("startedAt")
    ready = _condition(status, "Ready").get("lastTransitionTime")
    if not started or not ready:
        return 0
    return max(0, round((datetime.fromisoformat(ready) - datetime.fromisoformat(started)).total_seconds()))


def _problem(raw: Raw) -> Problem:
    status = raw.get("status", {})
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return _not_scheduled(raw, scheduled.get("message", ""))
    containers = _containers(status)
    for container in containers:
        problem = _container_problem(raw, container)
        if problem:
            return problem
    engine: Raw = next((c for c in containers if c["name"] == names.ENGINE), {})
    running = engine.get("state", {}).get("running")
    if running is None:
        return _starting(raw)
    if not engine.get("started") or not _served(status, running):
        return Problem(Reason.LOADING, "vLLM is loading the model")
    return Problem(Reason.NOT_RESPONDING, "vLLM stopped answering its health check")


def _starting(raw: Raw) -> Problem:
    unmounted = _condition(raw.get("status", {}), "PodReadyToStartContainers").get("status") == "False"
    volumes = {volume["name"] for volume in raw.get("spec", {}).get("volumes") or []}
    if unmounted and volumes - set(RESERVED_VOLUMES):
        return Problem(
            Reason.STARTING,
            "its volumes are not mounted yet: check that what spec.podTemplate.volumes names exists",
        )
    return Problem(Reason.STARTING, "its containers are being started")


def _served(status: Raw, running: Raw) -> bool:
    """Whether the pod was ready since its engine started: readiness changed after that, and not to true."""
    since = _condition(status, "Ready").get("lastTransitionTime") or ""
    return since > (running.get("startedAt") or "")  # RFC 3339, UTC: sorts as text


def _not_scheduled(raw: Raw, message: str) -> Problem:
    missing = _MISSING_CLAIM.search(message)
    if not missing:
        return Problem(Reason.UNSCHEDULABLE, _short(message) or "it waits for a node")
    claim = missing[1]
    volume = next((volume for volume, named in claims_of(raw).items() if named == claim), "")
    return missing_claim(volume, claim, raw["metadata"]["namespace"])


def missing_claim(volume: str, claim: str, namespace: str) -> Problem:
    """The claim of a pod's volume does not exist."""
    where, reason = {
        "model": ("spec.model.source", Reason.MODEL_CLAIM_NOT_FOUND),
        "cache": ("spec.model.cache.claimName", Reason.MODEL_CLAIM_NOT_FOUND),
    }.get(volume, ("spec.podTemplate.volumes", Reason.VOLUME_CLAIM_NOT_FOUND))
    advice = f"create PersistentVolumeClaim {claim} in namespace {namespace}, or change {where}"
    return Problem(reason, f"{where} names claim {claim}, which does not exist: {advice}")


def _container_problem(raw: Raw, container: Raw) -> Problem | None:
    name, waiting = container["name"], container.get("state", {}).get("waiting", {})
    message = _short(waiting.get("message", ""))
    if waiting.get("reason") == "CreateContainerConfigError" and _MISSING_OBJECT.search(message):
        return _not_configured(raw, message)
    if waiting.get("reason") in _NOT_CREATED:
        fix = "check spec.podTemplate.securityContext and spec.podTemplate.volumeMounts against the image"
        return Problem(Reason.CONTAINER_NOT_CREATED, f"container {name}: {message}; {fix}")
    if waiting.get("reason") in _PULL_FAILURES:
        fix = "check spec.engine.image and spec.podTemplate.imagePullSecrets"
        return Problem(Reason.IMAGE_PULL_FAILED, f"container {name}: {message or waiting['reason']}; {fix}")
    ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated")
    crashed = ended and ended.get("exitCode") != 0
    if waiting.get("reason") == "CrashLoopBackOff" or crashed:
        return Problem(Reason.CRASHING, f"container {name} {_ending(ended or {}, container)}")
    return None


def _not_configured(raw: Raw, message: str) -> Problem:
    token = next((e for e in _engine_env(raw) if e["name"] == "HF_TOKEN"), {})
    secret = token.get("valueFrom", {}).get("secretKeyRef", {}).get("name")
    if secret and secret in message:
        advice = "create the Secret with that key, or change the field"
        return Problem(Reason.TOKEN_SECRET_NOT_FOUND, f"spec.model.tokenSecretRef: {message}: {advice}")
    return Problem(Reason.CONFIGURATION_NOT_FOUND, f"spec.engine.env: {message}")


def _ending(ended: Raw, container: Raw) -> str:
    said = _short((ended.get("message") or "").strip().rpartition("\n")[2])  # of a traceback, what was raised
    reason = ended.get("reason", "Error")
    times = container.get("restartCount", 0)
    return f"ended with code {ended.get('exitCode', '?')} ({reason}), restarts: {times}" + (
        f"; {said}" if said else ""
    )


def _condition(status: Raw, kind: str) -> Raw:
    return next((c for c in status.get("conditions") or [] if c["type"] == kind), {})


def claims_of(pod: Raw) -> dict[str, str]:
    """Volume name → claim of a pod or a pod template."""
    sources = {
        volume["name"]: (volume.get("persistentVolumeClaim") or {}).get("claimName")
        for volume in pod.get("spec", {}).get("volumes") or []
    }
    return {volume: claim for volume, claim in sources.items() if claim}


def _engine_env(raw: Raw) -> list[Raw]:
    containers = raw.get("spec", {}).get("containers", [])
    return next((c.get("env", []) for c in containers if c["name"] == names.ENGINE), [])


def _short(message: str) -> str:
    """At most so much that a condition stays readable."""
    return message if len(message) <= _MESSAGE_LIMIT else message[:_MESSAGE_LIMIT] + "…"
