"""The sample services: apply them, wait until they serve, change their policy, say what they are.

Waiting prints a service's conditions whenever they change, in the operator's own words.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from e2e.demo.kube import Kube, Object, condition, is_current, policy_applied, replicas
from e2e.demo.metrics import Targets

NAMESPACE = "headrace-demo"
_POLL = 1.0  # seconds
_MESSAGE = 160  # characters of a condition's message that are shown
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

Say = Callable[[str], None]


class NotReadyError(Exception):
    """A service did not get where it should; the message is the operator's."""


def load(folder: Path, engine_image: str = "") -> dict[str, Object]:
    """Load the LLMServices of a folder by name, with their image, or with `engine_image`."""
    manifests = [yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml"))]
    for manifest in manifests if engine_image else ():
        manifest["spec"]["engine"]["image"] = engine_image
    return {manifest["metadata"]["name"]: manifest for manifest in manifests}


def targets(manifests: Mapping[str, Object]) -> dict[str, Targets]:
    """Return each service's SLO, in seconds."""
    return {
        name: Targets(**{kind: seconds(value) for kind, value in manifest["spec"].get("slo", {}).items()})
        for name, manifest in manifests.items()
    }


def seconds(duration: str) -> float:
    """Read a duration as the API writes it: `500ms` → 0.5."""
    number = duration.rstrip("mhs")
    return int(number) * _UNITS[duration.removeprefix(number)]


def wait_ready(kube: Kube, manifests: Mapping[str, Object], timeout: float, say: Say) -> None:
    """Wait until all are Ready, routed and under their policy; raises NotReadyError with what is not."""
    deadline = time.monotonic() + timeout
    told: dict[str, str] = {}
    waiting = set(manifests)
    while waiting:
        for name in sorted(waiting):
            service = kube.get(NAMESPACE, "llmservice", name)
            story = describe(service)
            if told.get(name) != story:
                say(f"  {name}: {story}")
                told[name] = story
            if serves(service):
                waiting.discard(name)
        if waiting and time.monotonic() > deadline:
            last = "; ".join(f"{name}: {told[name]}" for name in sorted(waiting))
            raise NotReadyError(f"not ready in {timeout:.0f} s: {last}")
        time.sleep(_POLL)


def serves(service: Object) -> bool:
    """Tell whether all replicas are Ready, routed, and run the policy that the spec asks for."""
    return (
        is_current(service, "Ready")
        and is_current(service, "RoutingReady")
        and service["status"].get("readyReplicas") == replicas(service)
        and policy_applied(service)
    )


def describe(service: Object) -> str:
    """Describe a service in a line: replicas, policy in force, the first condition that is not right."""
    status = service.get("status", {})
    policy = status.get("policy", {})
    counts = (
        f"{status.get('readyReplicas', 0)}/{replicas(service)} ready, "
        f"{policy.get('name', 'no policy')} on {policy.get('appliedReplicas', 0)}"
    )
    for kind in ("Accepted", "Ready", "PolicyApplied", "RoutingReady"):
        seen = condition(service, kind)
        if seen and seen["status"] != "True":
            message = " ".join(seen.get("message", "").split())[:_MESSAGE]
            return f"{counts}, {kind}={seen['status']}/{seen['reason']}: {message}".rstrip(": ")
    return counts


@dataclass(frozen=True, slots=True)
class Change:
    """A change of scheduling that every replica has applied, says the operator; in seconds."""

    total: float  # from before `kubectl patch` started
    applied: float  # from when the API server had it


def schedule(kube: Kube, name: str, scheduling: Object, timeout: float = 60) -> Change:
    """Patch a service's scheduling with kubectl and wait for every replica; raises TooLateError."""
    with kube.watch(NAMESPACE, "llmservice", name) as watch:
        asked = time.monotonic()
        patched = kube.patch(NAMESPACE, "llmservice", name, {"spec": {"scheduling": scheduling}})
        generation = patched["metadata"]["generation"]

        def accepted(service: Object) -> bool:
            return bool(service["metadata"]["generation"] >= generation)

        taken, applied = watch.times(
            (accepted, lambda service: accepted(service) and policy_applied(service)), timeout
        )
    return Change(applied - asked, applied - taken)


def sidecar(kube: Kube, pod: Object, path: str) -> Object:
    """Return the JSON that a pod's sidecar answers, through the API server; raises KubeError."""
    place = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:9400/proxy{path}"
    return json.loads(kube("get", "--raw", place))  # type: ignore[no-any-return]


def pod_lives(kube: Kube) -> dict[str, int]:
    """Count the restarts of each pod's containers by the pod's uid: equal if nothing was restarted.

    Pods that are being deleted are left out: their end was asked for.
    """
    return {
        pod["metadata"]["uid"]: sum(
            container["restartCount"]
            for kind in ("initContainerStatuses", "containerStatuses")
            for container in pod["status"].get(kind, ())
        )
        for pod in kube.items(NAMESPACE, "pods", "app.kubernetes.io/managed-by=headrace")
        if "deletionTimestamp" not in pod["metadata"]
    }


def restarted(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Count the restarts and replaced pods that lie between two observations."""
    return sum(after[uid] - count if uid in after else 1 for uid, count in before.items())


def events(kube: Kube, last: int = 12) -> list[str]:
    """List the services' own events, oldest first: when, about which service, what."""
    found = [
        event for event in kube.items(NAMESPACE, "events") if event["involvedObject"]["kind"] == "LLMService"
    ]
    found.sort(key=lambda event: event.get("eventTime") or event["metadata"]["creationTimestamp"])
    return [
        f"{event['metadata']['creationTimestamp'][11:19]} {event['involvedObject']['name']:5} "
        f"{event['reason']}: {' '.join(event['message'].split())[:_MESSAGE]}"
        for event in found[-last:]
    ]
