"""Turn server of a group of a GPUPool: its pod, its address, its token, and who may reach it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace_operator import names
from headrace_operator.api import GPUPool, LLMService
from headrace_operator.api.bodies import JsonObject
from headrace_operator.api.gpu_pool import Group
from headrace_operator.desired.manifest import Manifest, content_hash, manifest, with_content_hash
from headrace_operator.desired.resource_claims import REQUEST
from headrace_operator.desired.sidecar_containers import RESTRICTED
from headrace_operator.settings import Settings

_FOLDER = "/etc/headrace/turns"
_COMMAND = ["python3", "-m", "headrace_engine.turns", "--port", str(names.TURNS_PORT)]
_TOKEN_FILE = ["--token-file", f"{_FOLDER}/{names.TOKEN_FILE}"]


class Anchor(NamedTuple):
    """How the server's pod holds the devices of its group while no member runs; it does not use them."""

    claim: str
    is_allocated: bool
    tolerations: tuple[JsonObject, ...]  # of the members, since it runs where they do


def turn_server_objects(
    pool: GPUPool, group: Group, token: str, settings: Settings, anchor: Anchor | None = None
) -> tuple[Manifest, ...]:
    """Make all objects of a group; `token`, in hexadecimal digits, proves its members to the server.

    The token guards no data: who has it may at most have others wait. So it is in a ConfigMap, as it is in
    those of the members.
    """
    name = names.turn_server(pool.key, group.name)
    labels = {names.POOL_GROUP_LABEL: group.name}
    selector = names.turn_server_labels(pool.key, group.name)

    def made(api_version: str, kind: str, **content: JsonObject) -> Manifest:
        return with_content_hash(manifest(pool, api_version, kind, name, labels, **content))

    return (
        made("v1", "ConfigMap", data={names.TOKEN_FILE: token}),
        made("networking.k8s.io/v1", "NetworkPolicy", spec=_from_members(group, selector)),
        made(
            "v1",
            "Service",
            spec={
                "type": "ClusterIP",
                "selector": selector,
                "ports": [
                    {"name": "turns", "port": names.TURNS_PORT, "targetPort": "turns", "protocol": "TCP"}
                ],
            },
        ),
        made(
            "apps/v1",
            "Deployment",
            spec={
                # The first member decides where: this pod fits many nodes that have no room for it.
                "replicas": 1 if anchor is None or anchor.is_allocated else 0,
                "selector": {"matchLabels": selector},
                # One after the other, since members of two servers would not take turns; but `Recreate`
                # would wait for ever for the end of a pod whose node is dead.
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
                },
                "template": {
                    "metadata": {
                        "labels": {**names.labels(pool.key), **labels},
                        "annotations": {names.TOKEN_HASH: content_hash(token)},
                    },
                    "spec": {**_pod(name, settings), **_hold(anchor)},
                },
            },
        ),
    )


def tolerations_of(members: Iterable[LLMService]) -> tuple[JsonObject, ...]:
    """Return the tolerations of all members, each once."""
    found: list[JsonObject] = []
    for member in members:
        each = (toleration.as_body() for toleration in member.spec.pod_template.tolerations)
        found += [toleration for toleration in each if toleration not in found]
    return tuple(found)


def _hold(anchor: Anchor | None) -> JsonObject:
    if anchor is None:
        return {}
    return {
        "resourceClaims": [{"name": REQUEST, "resourceClaimName": anchor.claim}],
        **({"tolerations": list(anchor.tolerations)} if anchor.tolerations else {}),
    }


def _from_members(group: Group, selector: dict[str, str]) -> JsonObject:
    members = {"key": names.SERVICE_LABEL, "operator": "In", "values": sorted(group.members)}
    return {
        "podSelector": {"matchLabels": selector},
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [{"podSelector": {"matchExpressions": [members]}}],
                "ports": [{"port": names.TURNS_PORT, "protocol": "TCP"}],
            }
        ],
    }


def _pod(name: str, settings: Settings) -> JsonObject:
    """Make the server's pod. No limit of CPU: a server that is throttled looks dead to its members."""
    answers = {"exec": {"command": [*_COMMAND, "--check"]}, "timeoutSeconds": 5}
    return {
        "automountServiceAccountToken": False,
        "serviceAccountName": "default",
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 2,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "turns",
                "image": settings.sidecar_image,
                "imagePullPolicy": settings.sidecar_image_pull_policy,
                "command": [*_COMMAND, *_TOKEN_FILE],
                "ports": [{"name": "turns", "containerPort": names.TURNS_PORT, "protocol": "TCP"}],
                "readinessProbe": {**answers, "periodSeconds": 5},
                "livenessProbe": {**answers, "periodSeconds": 20, "failureThreshold": 3},
                "securityContext": RESTRICTED,
                "resources": {"requests": {"cpu": "10m", "memory": "48Mi"}, "limits": {"memory": "128Mi"}},
                "volumeMounts": [{"name": "token", "mountPath": _FOLDER, "readOnly": True}],
            }
        ],
        "volumes": [{"name": "token", "configMap": {"name": name}}],
    }
