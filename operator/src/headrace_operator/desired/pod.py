"""The pod of one replica: installer, sidecar and engine around shared volumes.

Only what must restart the engine may appear here. Policy, targets and routing reach running pods by other
ways.
"""

from __future__ import annotations

from headrace_operator import names
from headrace_operator.api import LLMService
from headrace_operator.api.bodies import JsonObject
from headrace_operator.desired import engine_container, sidecar_containers
from headrace_operator.desired.inputs import inputs_hash
from headrace_operator.desired.resource_claim_template import REQUEST
from headrace_operator.settings import Settings


def pod_template(service: LLMService, image: str, settings: Settings) -> JsonObject:
    """The template, with the sidecar's `image`."""
    asked = service.spec.pod_template
    metadata = {
        "labels": {**asked.metadata.labels, **names.labels(service.key)},
        "annotations": {**asked.metadata.annotations, names.INPUTS_HASH: inputs_hash(service)},
    }
    return {"metadata": metadata, "spec": {**_fixed(service, image, settings), **_placement(service)}}


def _fixed(service: LLMService, image: str, settings: Settings) -> JsonObject:
    """What every engine pod has. Service links are off: a Service named `vllm` would set VLLM_PORT."""
    return {
        "automountServiceAccountToken": False,
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
    """Where the pod may run, as the user asked; absent where nothing was asked."""
    asked = service.spec.pod_template
    placement = {
        "nodeSelector": dict(asked.node_selector),
        "tolerations": [t.model_dump(by_alias=True, exclude_none=True) for t in asked.tolerations],
        "affinity": asked.affinity,
        "priorityClassName": asked.priority_class_name,
        "runtimeClassName": asked.runtime_class_name,
        "imagePullSecrets": [secret.model_dump() for secret in asked.image_pull_secrets],
        "resourceClaims": [{"name": REQUEST, "resourceClaimTemplateName": names.claim_template(service.key)}]
        if service.claims_devices
        else None,
    }
    return {name: value for name, value in placement.items() if value}


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
    return volumes + [
        v.model_dump(by_alias=True, exclude_none=True) for v in service.spec.pod_template.volumes
    ]


def _shared_memory(service: LLMService) -> str:
    """Size of /dev/shm: the runtime's 64 MiB is too small for the ranks' message queues and NCCL."""
    return f"{1 + service.spec.engine.tensor_parallel_size}Gi"


_EMPTY: JsonObject = {"emptyDir": {}}
