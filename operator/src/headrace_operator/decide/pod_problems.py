"""Why a pod does not serve: reason and a sentence that names what is missing, from its raw object. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace_operator import names
from headrace_operator.api import RESERVED_VOLUMES, PodReason
from headrace_operator.api.bodies import Body
from headrace_operator.api.reserved import VARIABLE_BY_FIELD
from headrace_operator.decide.crashes import Crash, read_crash

_MISSING_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
# Kubernetes' scheduler on volumes: claims without one, or whose one cannot be had yet.
_UNBOUND_CLAIM = re.compile(
    r"unbound immediate PersistentVolumeClaims|available persistent volumes to bind"
    r"|non-existent p(v|ersistentv)"
    r"|binding volumes|storageclass\S* \"[^\"]*\" not found|persistentvolumeclaim \"[^\"]+\" is being deleted"
    r"|PersistentVolumeClaim with ReadWriteOncePod access mode already in-use",
    re.IGNORECASE,
)
# The kubelet on variables: without their object, or without their key in it.
_MISSING_OBJECT = re.compile(r'(?P<kind>secret|configmap) "?(?P<name>[^" ]+)"? not found', re.IGNORECASE)
_MISSING_KEY = re.compile(r"couldn't find key (?P<key>\S+) in (?P<kind>Secret|ConfigMap) \S+/(?P<name>\S+)")
_PULL_FAILURES = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
}
_NOT_CREATED = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_PHASES = {str(reason): reason for reason in (PodReason.DOWNLOADING, PodReason.LOADING, PodReason.COMPILING)}
_IMAGES = {names.ENGINE: "spec.engine.image"}  # by container; all others have the operator's own
_TOKEN_VARIABLE = VARIABLE_BY_FIELD["spec.model.tokenSecretRef"]
_OWN_IMAGE = "image.registry and image.tag of the chart"
_MESSAGE_LIMIT = 600
_CLAIMS_TOLD = 4


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a pod does not serve."""

    reason: PodReason
    message: str
    more: str = ""  # where to read on, as long as the pod is there

    @property
    def advice(self) -> str:
        """The message, and where to read on."""
        return f"{self.message}; {self.more}" if self.more else self.message


def describe_problem(reason: PodReason, more: str = "", **details: str) -> Problem:
    """Return the reason with its sentence; `details` are what its text leaves open."""
    return Problem(reason, reason.text.format(**details), more)


def find_problem(pod: Body, phase: str = "") -> Problem:
    """Find out why a pod is not ready; `phase`: what its engine says that it is doing, empty if nothing."""
    status = pod.get("status", {})
    scheduled = pod_condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return _not_scheduled(pod, scheduled.get("message", ""))
    for container in container_statuses(status):
        found = _blocked(pod, container) or _down(pod, container)
        if found:
            return found
    engine = engine_container_status(status)
    running = engine.get("state", {}).get("running")
    if running is None:
        return _starting(pod)
    if awaits_route(pod) and pod_condition(status, "ContainersReady").get("status") == "True":
        return describe_problem(PodReason.NOT_ROUTED)
    if engine.get("started") and _has_served(status, running):
        return describe_problem(
            PodReason.NOT_RESPONDING, kubectl_logs_hint(pod["metadata"]["name"], names.ENGINE)
        )
    loading = describe_problem(_PHASES.get(phase, PodReason.LOADING))
    crash = read_crash(engine)
    return _crashing(pod, crash, f"; it runs again: {loading.message}") if crash else loading


def awaits_route(pod: Body) -> bool:
    """Tell whether the pod's readiness waits for the gateway to have its address."""
    gates = {gate.get("conditionType") for gate in pod.get("spec", {}).get("readinessGates") or ()}
    return (
        names.ROUTED_GATE in gates
        and pod_condition(pod.get("status", {}), names.ROUTED_GATE).get("status") != "True"
    )


def missing_pvc(volume: str, claim: str, namespace: str) -> Problem:
    """Describe that the claim of a pod's volume does not exist."""
    field, reason = field_of_volume(volume)
    advice = f"create PersistentVolumeClaim {claim} in namespace {namespace}, or change {field}"
    return describe_problem(reason, field=field, claim=claim, advice=advice)


def field_of_volume(volume: str) -> tuple[str, PodReason]:
    """Return the field that a pod's volume comes from, and the reason to give when its claim is missing."""
    return {
        "model": ("spec.model.source", PodReason.MODEL_CLAIM_NOT_FOUND),
        "cache": ("spec.model.cache.claimName", PodReason.MODEL_CLAIM_NOT_FOUND),
    }.get(volume, ("spec.podTemplate.volumes", PodReason.VOLUME_CLAIM_NOT_FOUND))


def pvcs_of(pod: Body) -> dict[str, str]:
    """Return the claim of each volume of a pod or a pod template, by the volume's name."""
    sources = {
        volume["name"]: (volume.get("persistentVolumeClaim") or {}).get("claimName")
        for volume in pod.get("spec", {}).get("volumes") or []
    }
    return {volume: claim for volume, claim in sources.items() if claim}


def container_statuses(status: Body) -> list[Body]:
    """Return the statuses of a pod's containers, those that start first before the others."""
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def engine_container_status(status: Body) -> Body:
    """Return the status of the engine's container; empty before there is one."""
    return next((c for c in container_statuses(status) if c["name"] == names.ENGINE), {})


def pod_condition(status: Body, kind: str) -> Body:
    """Return a pod's condition; empty if it has none of that kind."""
    return next((c for c in status.get("conditions") or [] if c["type"] == kind), {})


def kubectl_logs_hint(pod: str, container: str, *, ended: bool = False) -> str:
    """Tell where to read on: what a container says, or said before it ended."""
    return f"`kubectl logs {pod} -c {container}{' --previous' if ended else ''}` has more"


def shorten(message: str) -> str:
    """Cut a text to what a condition shows and stays readable."""
    return message if len(message) <= _MESSAGE_LIMIT else message[:_MESSAGE_LIMIT] + "…"


def _not_scheduled(pod: Body, message: str) -> Problem:
    missing = _MISSING_CLAIM.search(message)
    claims = pvcs_of(pod)
    if missing:
        claim = missing[1]
        volume = next((volume for volume, named in claims.items() if named == claim), "")
        return missing_pvc(volume, claim, pod["metadata"]["namespace"])
    if _UNBOUND_CLAIM.search(message):
        named = [f"{claim} ({field_of_volume(volume)[0]})" for volume, claim in claims.items()]
        more = [] if len(named) <= _CLAIMS_TOLD else [f"{len(named) - _CLAIMS_TOLD} more"]
        told = ", ".join(named[:_CLAIMS_TOLD] + more) or "not in its spec"
        return describe_problem(PodReason.CLAIM_NOT_BOUND, words=shorten(message), claims=told)
    return describe_problem(PodReason.UNSCHEDULABLE, words=shorten(message) or "it waits for a node")


def _blocked(pod: Body, container: Body) -> Problem | None:
    """Find out whether a container cannot be made, and why."""
    name, waiting = container["name"], container.get("state", {}).get("waiting", {})
    why, words = waiting.get("reason", ""), shorten(waiting.get("message", ""))
    missing = _MISSING_OBJECT.search(words) or _MISSING_KEY.search(words)
    if why == "CreateContainerConfigError" and missing:
        return _not_configured(pod, missing, words)
    if why in _NOT_CREATED:
        return describe_problem(PodReason.CONTAINER_NOT_CREATED, container=name, words=words)
    if why in _PULL_FAILURES:
        fields = f"{_IMAGES.get(name, _OWN_IMAGE)} and spec.podTemplate.imagePullSecrets"
        return describe_problem(
            PodReason.IMAGE_PULL_FAILED, container=name, words=words or why, fields=fields
        )
    return None


def _down(pod: Body, container: Body) -> Problem | None:
    """Find out whether a container ended and does not run, or does not serve yet beside an engine."""
    state, crash = container.get("state", {}), read_crash(container)
    up = state.get("running") is not None and (container.get("started") or container["name"] == names.ENGINE)
    if crash and not up:
        return _crashing(pod, crash)
    if state.get("waiting", {}).get("reason") == "CrashLoopBackOff":
        return _crashing(pod, Crash(container["name"], container.get("restartCount", 0)))
    return None


def _crashing(pod: Body, crash: Crash, now: str = "") -> Problem:
    log = kubectl_logs_hint(pod["metadata"]["name"], crash.container, ended=True)
    return describe_problem(PodReason.CRASHING, log, crash=f"{crash}{now}")


def _not_configured(pod: Body, missing: re.Match[str], words: str) -> Problem:
    """Describe a missing object, or a missing key in it, in the kubelet's `words`."""
    token = next((e for e in _engine_env(pod) if e["name"] == _TOKEN_VARIABLE), {})
    asked = token.get("valueFrom", {}).get("secretKeyRef", {})
    found = missing.groupdict()
    same = (found["kind"].lower(), found["name"]) == ("secret", asked.get("name"))
    if same and found.get("key", asked.get("key")) == asked.get("key"):
        return describe_problem(PodReason.TOKEN_SECRET_NOT_FOUND, words=words)
    return describe_problem(PodReason.CONFIGURATION_NOT_FOUND, words=words)


def _starting(pod: Body) -> Problem:
    unmounted = pod_condition(pod.get("status", {}), "PodReadyToStartContainers").get("status") == "False"
    volumes = {volume["name"] for volume in pod.get("spec", {}).get("volumes") or []}
    step = "its images are being pulled, or its containers being started"
    if unmounted and volumes - set(RESERVED_VOLUMES):
        step = "its volumes are not mounted yet: check that what spec.podTemplate.volumes names exists"
    return describe_problem(PodReason.STARTING, step=step)


def _has_served(status: Body, running: Body) -> bool:
    """Tell whether the pod was ready since its engine started: readiness changed since, and not to true."""
    since = pod_condition(status, "Ready").get("lastTransitionTime") or ""
    return since > (running.get("startedAt") or "")  # RFC 3339, UTC: sorts as text


def _engine_env(pod: Body) -> list[Body]:
    containers = pod.get("spec", {}).get("containers", [])
    return next((c.get("env", []) for c in containers if c["name"] == names.ENGINE), [])
