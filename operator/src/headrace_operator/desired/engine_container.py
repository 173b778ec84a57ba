"""The engine container: the user's own vLLM image, with the plugin put in its way.

The command line is the user's arguments followed by the operator's: of two equal options the last one wins.
"""

from __future__ import annotations

import math

from headrace_operator import names
from headrace_operator.api import LLMService
from headrace_operator.api.base import milliseconds
from headrace_operator.api.bodies import JsonObject
from headrace_operator.api.engine import Variable
from headrace_operator.api.reserved import HOST_FLAG, PORT_FLAG, VARIABLE_BY_FIELD, passed_flag
from headrace_operator.desired.resource_claims import REQUEST

MODELS_FOLDER = "/models"
CACHE_FOLDER = "/cache"
# Where vLLM compiles, and binds the sockets of its processes.
HOME_FOLDER = "/tmp"  # noqa: S108

# The plugin goes ahead of the image's own PYTHONPATH without replacing it.
_START = (
    "export PYTHONPATH=/headrace/plugin${PYTHONPATH:+:$PYTHONPATH}; "
    'exec python3 -m vllm.entrypoints.openai.api_server "$@"'
)
# Seconds between "this pod leaves" and SIGTERM, in which gateways learn of it and stop sending.
LEAVE_SECONDS = 5
# Seconds that vLLM gets, after its drain timeout, to abort what is left and exit.
EXIT_SECONDS = 10
_START_PERIOD = 2


def engine_container(service: LLMService) -> JsonObject:
    """Make the container. It has no liveness probe: vLLM exits when its engine dies; a busy one must live."""
    health = {"path": "/health", "port": "http"}
    return {
        "name": names.ENGINE,
        "image": service.spec.engine.image,
        "imagePullPolicy": pull_policy(service.spec.engine.image),
        "command": ["sh", "-c", _START, "--"],
        "args": [*service.spec.engine.args, *_arguments(service)],
        "env": _environment(service),
        **_environment_from(service),
        "ports": [{"name": "http", "containerPort": names.HTTP_PORT, "protocol": "TCP"}],
        "startupProbe": {
            "httpGet": health,
            "periodSeconds": _START_PERIOD,
            "timeoutSeconds": 5,
            "failureThreshold": math.ceil(start_seconds(service) / _START_PERIOD),
        },
        "readinessProbe": {"httpGet": health, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        "lifecycle": {"preStop": {"sleep": {"seconds": LEAVE_SECONDS}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",  # the status then quotes why it crashed
        "resources": _resources(service),
        "securityContext": _security_context(service),
        "volumeMounts": _mounts(service),
    }


def drain_seconds(service: LLMService) -> int:
    """Return how long a stopping engine may finish its requests; vLLM counts in whole seconds."""
    return math.ceil(milliseconds(service.spec.disruption.drain_timeout) / 1000)


def start_seconds(service: LLMService) -> int:
    """Return how long an engine may take to serve."""
    return math.ceil(milliseconds(service.spec.engine.start_timeout) / 1000)


def pull_policy(image: str) -> str:
    """Return what the API server fills in for a new object; an old one keeps what went with the old image."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


def needs_home(service: LLMService) -> bool:
    """Tell whether the image's own home and /tmp may not be writable: its user, or its root, is another."""
    asked = service.spec.pod_template.security_context
    mounted = {mount.mount_path.rstrip("/") for mount in service.spec.pod_template.volume_mounts}
    return HOME_FOLDER not in mounted and (
        asked.run_as_user is not None or bool(asked.read_only_root_filesystem)
    )


def claim_and_path(source: str) -> tuple[str, str]:
    """Split a pvc:// source into the claim's name and the path in it."""
    claim, _, path = source.removeprefix("pvc://").partition("/")
    return claim, path


def _arguments(service: LLMService) -> list[str]:
    spec = service.spec
    options = {
        passed_flag("spec.model.source"): _model(spec.model.source),
        passed_flag("spec.model.revision"): spec.model.revision,
        HOST_FLAG: "0.0.0.0",  # noqa: S104 reached by the gateway at the pod's address
        PORT_FLAG: names.HTTP_PORT,
        passed_flag("spec.engine.tensorParallelSize"): spec.engine.tensor_parallel_size,
        passed_flag("spec.engine.maxModelLen"): spec.engine.max_model_len,
        passed_flag("spec.engine.gpuMemoryUtilizationPercent"): _fraction(
            spec.engine.gpu_memory_utilization_percent
        ),
        passed_flag("spec.engine.blockSize"): spec.engine.block_size,
        passed_flag("spec.disruption.drainTimeout"): drain_seconds(service),
    }
    served = dict.fromkeys((service.served_name, names.qualified(service.key)))
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    return [passed_flag("spec.model.servedName"), *served, *given]


def _model(source: str) -> str:
    if source.startswith("hf://"):
        return source.removeprefix("hf://")
    return "/".join(part for part in (MODELS_FOLDER, *claim_and_path(source)) if part)


def _fraction(percent: int | None) -> str | None:
    return None if percent is None else f"{percent / 100:.2f}"


def _environment(service: LLMService) -> list[JsonObject]:
    variables = [_variable(variable) for variable in service.spec.engine.env]
    variables.append({"name": VARIABLE_BY_FIELD["spec.model.cache"], "value": CACHE_FOLDER})
    if needs_home(service):
        given = {variable["name"] for variable in variables}
        home = {"HOME": HOME_FOLDER, "USER": "vllm"}  # a user without an entry in /etc/passwd has neither
        variables += [{"name": name, "value": value} for name, value in home.items() if name not in given]
    token = service.spec.model.token_secret_ref
    if token:
        reference = {"secretKeyRef": {"name": token.name, "key": token.key}}
        variables.append({"name": VARIABLE_BY_FIELD["spec.model.tokenSecretRef"], "valueFrom": reference})
    return variables


def _environment_from(service: LLMService) -> JsonObject:
    sources = service.spec.engine.env_from
    given = [source.as_body() for source in sources]
    return {"envFrom": given} if given else {}


def _variable(variable: Variable) -> JsonObject:
    """Make the variable, with what the API server fills in and leaves there when its source is another."""
    content = variable.as_body()
    field = content.get("valueFrom", {}).get("fieldRef")
    if field is not None:
        field["apiVersion"] = "v1"
    return content


def _resources(service: LLMService) -> JsonObject:
    resources: JsonObject = service.spec.pod_template.resources.model_dump(
        by_alias=True, exclude_defaults=True
    )
    if service.uses_dra:
        return {**resources, "claims": [{"name": REQUEST}]}
    extended = service.spec.accelerator.extended_resource
    if extended is None:
        return resources
    count = {extended: str(service.spec.engine.tensor_parallel_size)}
    return {**resources, "limits": {**resources.get("limits", {}), **count}}


def _security_context(service: LLMService) -> JsonObject:
    asked = service.spec.pod_template.security_context
    context: JsonObject = {"allowPrivilegeEscalation": False}
    ids = {"runAsUser": asked.run_as_user, "runAsGroup": asked.run_as_group}
    context |= {name: value for name, value in ids.items() if value is not None}
    if asked.run_as_non_root:
        context |= {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}}
    if asked.read_only_root_filesystem:
        context["readOnlyRootFilesystem"] = True
    return context


def _mounts(service: LLMService) -> list[JsonObject]:
    mounts: list[JsonObject] = [
        {"name": "headrace", "mountPath": "/headrace/plugin", "subPath": "plugin", "readOnly": True},
        {"name": "headrace", "mountPath": "/headrace/control", "subPath": "control", "readOnly": True},
        {"name": "headrace", "mountPath": "/headrace/stats", "subPath": "stats"},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        {"name": "cache", "mountPath": CACHE_FOLDER},
    ]
    if service.spec.model.source.startswith("pvc://"):
        claim, _ = claim_and_path(service.spec.model.source)
        mounts.append({"name": "model", "mountPath": f"{MODELS_FOLDER}/{claim}", "readOnly": True})
    if needs_home(service):
        mounts.append({"name": "headrace-home", "mountPath": HOME_FOLDER})
    asked = service.spec.pod_template.volume_mounts
    return mounts + [mount.model_dump(by_alias=True, exclude_defaults=True) for mount in asked]
