"""The two containers from Headrace's image: the installer of the plugin, and the sidecar."""

from __future__ import annotations

from headrace_operator import names
from headrace_operator.api.bodies import JsonObject
from headrace_operator.settings import Settings

POLICY_FOLDER = "/etc/headrace/policy"
SHARED_FOLDER = "/headrace"
_USER = 65532
RESTRICTED = {
    "runAsUser": _USER,
    "runAsGroup": _USER,
    "runAsNonRoot": True,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
_RESOURCES = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}


def install_container(image: str, settings: Settings) -> JsonObject:
    """Make the container that copies the plugin into the shared folder and ends."""
    return {**_container(names.INSTALL, image, settings), "args": ["install"]}


def sidecar_container(image: str, settings: Settings) -> JsonObject:
    """Make the container that hands the policy to the engine and reports on it.

    A native sidecar: the engine starts after its start-up probe has passed, and it stops after the engine.
    It has no readiness probe, since a restart of the sidecar must not take a working engine out of service
    for longer than it lasts.
    """
    health = {"path": "/healthz", "port": "sidecar"}
    return {
        **_container(names.SIDECAR, image, settings),
        "args": ["serve"],
        "restartPolicy": "Always",
        "env": [
            {"name": "HEADRACE_PORT", "value": str(names.SIDECAR_PORT)},
            {"name": "HEADRACE_ENGINE_URL", "value": f"http://127.0.0.1:{names.HTTP_PORT}"},
            {"name": "HEADRACE_POLICY_DIR", "value": POLICY_FOLDER},
        ],
        "ports": [{"name": "sidecar", "containerPort": names.SIDECAR_PORT, "protocol": "TCP"}],
        "startupProbe": {"httpGet": health, "periodSeconds": 1, "failureThreshold": 60},
        "livenessProbe": {"httpGet": health, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6},
        "volumeMounts": [
            {"name": "headrace", "mountPath": SHARED_FOLDER},
            {"name": "policy", "mountPath": POLICY_FOLDER, "readOnly": True},
        ],
    }


def _container(name: str, image: str, settings: Settings) -> JsonObject:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": settings.sidecar_image_pull_policy,
        "command": ["python3", "-m", "headrace_sidecar.engine"],
        "securityContext": RESTRICTED,
        "resources": _RESOURCES,
        "volumeMounts": [{"name": "headrace", "mountPath": SHARED_FOLDER}],
    }
