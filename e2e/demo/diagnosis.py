"""What to look at when the demo stops: the services' own words, then pods that are not ready, then events."""

import contextlib

from e2e.demo.kube import Kube, KubeError, Object
from e2e.demo.services import NAMESPACE
from e2e.demo.target import SYSTEM_NAMESPACE

_TAIL = 15  # lines of each command's output


def diagnose(kube: Kube) -> str:
    """Return the ends of `kubectl describe` and `kubectl logs` of what is not as it should be."""
    commands: list[tuple[str, ...]] = [("describe", "llmservices", "-n", NAMESPACE)]
    for namespace in (SYSTEM_NAMESPACE, NAMESPACE):
        for pod in _unready(kube, namespace):
            commands.append(("describe", "pod", pod, "-n", namespace))
            commands.append(("logs", pod, "-n", namespace, "--all-containers", f"--tail={_TAIL}"))
    commands.append(("get", "events", "-n", NAMESPACE, "--sort-by=.lastTimestamp"))
    return "\n\n".join(_tail(kube, command) for command in commands)


def _unready(kube: Kube, namespace: str) -> list[str]:
    with contextlib.suppress(KubeError):
        return [pod["metadata"]["name"] for pod in kube.items(namespace, "pods") if not _ready(pod)]
    return []


def _ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _tail(kube: Kube, command: tuple[str, ...]) -> str:
    try:
        output = kube(*command)
    except KubeError as error:
        output = str(error)
    return "\n".join([f"$ kubectl {' '.join(command)}", *output.rstrip().splitlines()[-_TAIL:]])
