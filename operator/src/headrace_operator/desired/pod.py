"""The pod of one replica: installer, sidecar and engine around shared volumes.

Only what must restart the engine may appear here. Policy, targets and routing reach running pods by other
ways.
"""

from __future__ import annotations

from headrace_operator import names
from headrace_operator.api import LLMService
from headrace_operator.api.bodies import JsonObject
from headrace_operator.api.pod_template import SpreadConstraint
from headrace_operator.api.volumes import Volume
from headrace_operator.desired import engine_container, sidecar_containers
from headrace_operator.desired.inputs import inputs_hash
from headrace_operator.desired.resource_claims import REQUEST
from headrace_operator.settings import Settings


def pod_template(service: LLMService, image: str, settings: Settings) -> JsonObject:
    """Make the template, with the sidecar's `image`."""
    asked = service.spec.pod_template
    metadata = {
        "labels": {**asked.metadata.labels, **names.labels(service.key)},
        "annotations": {**asked.metadata.annotations, names.INPUTS_HASH: inputs_hash(service)},
    }
    return {"metadata": metadata, "spec": {**_fixed(service, image, settings), **_placement(service)}}


def _fixed(service: LLMService, image: str, settings: Settings) -> JsonObject:
    """Make what every engine pod has. Service links are off: a Service named `vllm` would set VLLM_PORT."""
    return {
        "automountServiceAccountToken": False,
        "serviceAccountName": service.spec.pod_template.service_account_name or _DEFAULT_ACCOUNT,
        "enableServiceLinks": False,
        **({"readinessGates": [{"conditionType": names.ROUTED_GATE}]} if settings.routed_gate else {}),
        "terminationGracePeriodSeconds": engine_container.LEAVE_SECONDS
        + engine_container.drain_seconds(service)
        + engine_container.EXIT_SECONDS,
        "securityContext": _security_context(service),
        "initContainers": [
            sidecar_containers.install_container(image, settings),
            sidecar_containers.sidecar_container(image, settings),
        ],
        "containers": [engine_container.engine_container(service)],
        "volumes": _volumes(service),
    }


def _placement(service: LLMService) -> JsonObject:
    """Say where the pod may run, as the user asked; absent where nothing was asked."""
    asked = service.spec.pod_template
    placement = {
        "nodeSelector": dict(asked.node_selector),
        "tolerations": [t.as_body() for t in asked.tolerations],
        "affinity": asked.affinity,
        "topologySpreadConstraints": [
            _spread(service, constraint) for constraint in asked.topology_spread_constraints
        ],
        "schedulerName": asked.scheduler_name,
        "priorityClassName": asked.priority_class_name,
        "runtimeClassName": asked.runtime_class_name,
        "imagePullSecrets": [secret.as_body() for secret in asked.image_pull_secrets],
        "resourceClaims": [{"name": REQUEST, **_claim(service)}] if service.uses_dra else None,
    }
    return {name: value for name, value in placement.items() if value}


def _claim(service: LLMService) -> JsonObject:
    if service.group_claim:
        return {"resourceClaimName": service.group_claim}
    return {"resourceClaimTemplateName": names.claim_template(service.key)}


def _spread(service: LLMService, constraint: SpreadConstraint) -> JsonObject:
    own = {"matchLabels": names.pod_labels(service.key)}
    return {
        "labelSelector": own,
        **constraint.as_body(),
    }


def _security_context(service: LLMService) -> JsonObject:
    asked = service.spec.pod_template.security_context
    context: JsonObject = {"seccompProfile": {"type": "RuntimeDefault"}}
    if asked.fs_group is not None:
        context["fsGroup"] = asked.fs_group
    if asked.supplemental_groups:
        context["supplementalGroups"] = list(asked.supplemental_groups)
    return context


def _volumes(service: LLMService) -> list[JsonObject]:
    model = service.spec.model
    volumes: list[JsonObject] = [
        {"name": "headrace", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        {"name": "policy", "configMap": {"name": names.policy_config_map(service.key)}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _shared_memory(service)}},
        {
            "name": "cache",
            **({"persistentVolumeClaim": {"claimName": model.cache.claim_name}} if model.cache else _EMPTY),
        },
    ]
    if model.source.startswith("pvc://"):
        claim, _ = engine_container.claim_and_path(model.source)
        volumes.append({"name": "model", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}})
    if engine_container.needs_home(service):
        volumes.append({"name": "headrace-home", **_EMPTY})
    return volumes + [_volume(volume) for volume in service.spec.pod_template.volumes]


def _volume(volume: Volume) -> JsonObject:
    """Make the volume, with what the API server fills in and leaves there when its source is another."""
    content = volume.as_body()
    if volume.image is not None:
        policy = volume.image.pull_policy or engine_container.pull_policy(volume.image.reference)
        content["image"]["pullPolicy"] = policy
    return content


def _shared_memory(service: LLMService) -> str:
    """Return the size of /dev/shm: the runtime's 64 MiB is too small for ranks' message queues and NCCL."""
    return f"{1 + service.spec.engine.tensor_parallel_size}Gi"


# Named, since the API server keeps the last one in another field of the pod, and takes it from there.
_DEFAULT_ACCOUNT = "default"
_EMPTY: JsonObject = {"emptyDir": {}}
