"""What is served and by what: the model, the vLLM process, and the device it runs on."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from headrace_operator.api import reserved
from headrace_operator.api.base import (
    ATOMIC,
    Block,
    Duration,
    Integer,
    Text,
    Word,
    check_one,
    exactly_one,
    is_duration,
    list_map,
    milliseconds,
    rolls,
    rule,
    ruled,
)
from headrace_operator.api.formats import SUBDOMAIN, ConfigKey, DeviceResource, Image, ObjectName, PodField

_HUB = r"^hf://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$"
_CLAIM = f"^pvc://{SUBDOMAIN}(/[A-Za-z0-9._-]+)*$"
_SOURCE_ADVICE = "must be hf://ORGANISATION/NAME or pvc://CLAIM/PATH (no `..` in the path)"


def _known_source(source: str) -> str:
    if ".." in source or not (re.fullmatch(_HUB, source) or re.fullmatch(_CLAIM, source)):
        raise ValueError(f"{source!r} {_SOURCE_ADVICE}")
    return source


Source = Annotated[
    str,
    StringConstraints(min_length=1, max_length=512),
    AfterValidator(_known_source),
    Field(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule(
                    f"(self.matches('{_HUB}') || self.matches('{_CLAIM}')) && !self.contains('..')",
                    _SOURCE_ADVICE,
                )
            ]
        }
    ),
]
ServedName = Annotated[
    str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")
]
Argument = Annotated[str, StringConstraints(max_length=2048)]
VariableName = Annotated[str, StringConstraints(max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


_HUB_ONLY = "revision, tokenSecretRef and cache apply to hf:// sources: remove them, or change model.source"


class SecretKey(Block):
    """A key of a Secret in the service's namespace."""

    name: ObjectName = rolls("Name of the Secret, in the same namespace.")
    key: ConfigKey = rolls("Key within the Secret.", "token")


class Cache(Block):
    """Where downloaded weights are kept."""

    claim_name: ObjectName = rolls(
        "PersistentVolumeClaim that keeps downloaded weights over restarts; with several replicas it must be "
        "ReadWriteMany, or all pods must be on one node."
    )


class Model(Block):
    """The weights, and the name that clients use for them."""

    source: Source = rolls(
        "Where the weights are: hf://ORGANISATION/NAME (downloaded from the Hugging Face hub) or "
        "pvc://CLAIM/PATH "
        "(read from a PersistentVolumeClaim of the same namespace, mounted read-only)."
    )
    revision: Word | None = rolls("Branch, tag or commit on the hub; unset means the hub's default.", None)
    served_name: ServedName | None = rolls(
        "Name of the model in requests; unset means the LLMService's own name. When two services "
        "want one name it stays whose it was; NAMESPACE/NAME always works. Requests reach the service by "
        "the name that it had until all replicas answer to the new one; NAMESPACE/NAME works throughout.",
        None,
    )
    token_secret_ref: SecretKey | None = rolls("Hub token for gated models; unset means anonymous.", None)
    cache: Cache | None = rolls("Keeps downloaded weights; unset means each new pod downloads.", None)

    model_config = ruled(
        rule(
            "!self.source.startsWith('pvc://') || (!has(self.revision) && !has(self.tokenSecretRef) "
            "&& !has(self.cache))",
            _HUB_ONLY,
            ".source",
        )
    )

    @model_validator(mode="after")
    def _of_the_hub(self) -> Model:
        if self.source.startswith("pvc://") and (self.revision or self.token_secret_ref or self.cache):
            raise ValueError(f"model: {_HUB_ONLY}")
        return self


class KeySelector(Block):
    """A key of a Secret or ConfigMap."""

    name: ObjectName = rolls("Name of the object, in the same namespace.")
    key: ConfigKey = rolls("Key within it.")


class FieldSelector(Block):
    """A field of the pod."""

    field_path: PodField = rolls(
        "The field: metadata.name, .namespace, .uid, .labels['KEY'] or .annotations['KEY'], spec.nodeName or "
        ".serviceAccountName, status.hostIP, .hostIPs, .podIP or .podIPs."
    )


_ONE_REFERENCE = "set exactly one of secretKeyRef, configMapKeyRef and fieldRef"
_ONE_VALUE = "set exactly one of value and valueFrom"


class ValueSource(Block):
    """Where an environment variable's value comes from; exactly one."""

    secret_key_ref: KeySelector | None = rolls("A Secret's key.", None)
    config_map_key_ref: KeySelector | None = rolls("A ConfigMap's key.", None)
    field_ref: FieldSelector | None = rolls("A field of the pod.", None)

    model_config = ruled(exactly_one(("secretKeyRef", "configMapKeyRef", "fieldRef"), _ONE_REFERENCE))

    @model_validator(mode="after")
    def _one(self) -> ValueSource:
        check_one((self.secret_key_ref, self.config_map_key_ref, self.field_ref), _ONE_REFERENCE)
        return self


class Variable(Block):
    """An environment variable of the engine."""

    name: VariableName = rolls("Its name.")
    value: Text | None = rolls("Its value.", None)
    value_from: ValueSource | None = rolls("Where its value comes from.", None)

    model_config = ruled(rule("has(self.value) != has(self.valueFrom)", _ONE_VALUE))

    @model_validator(mode="after")
    def _one(self) -> Variable:
        if (self.value is None) == (self.value_from is None):
            raise ValueError(_ONE_VALUE)
        return self


class WholeObject(Block):
    """A Secret or ConfigMap of which every key becomes a variable."""

    name: ObjectName = rolls("Name of the object, in the same namespace.")
    optional: bool | None = rolls("Whether it may be missing; unset means that it may not.", None)


_ONE_OBJECT = "set exactly one of secretRef and configMapRef"


class VariablesSource(Block):
    """A Secret or ConfigMap whose keys become environment variables."""

    prefix: VariableName | None = rolls("What each key gets put in front of it.", None)
    secret_ref: WholeObject | None = rolls("A Secret.", None)
    config_map_ref: WholeObject | None = rolls("A ConfigMap.", None)

    model_config = ruled(exactly_one(("secretRef", "configMapRef"), _ONE_OBJECT))

    @model_validator(mode="after")
    def _one(self) -> VariablesSource:
        check_one((self.secret_ref, self.config_map_ref), _ONE_OBJECT)
        return self


_SHORTEST_START, _LONGEST_START = milliseconds("10s"), milliseconds("168h")
_START_BOUNDS = "engine.startTimeout must be at least 10s and at most 168h"
_START_IN_BOUNDS = (
    f"!{is_duration('startTimeout')} || (duration(self.startTimeout) >= duration('10s') && "
    "duration(self.startTimeout) <= duration('168h'))"
)


class Engine(Block):
    """The vLLM process."""

    image: Image = rolls(
        "Image with vLLM, used as it is; Headrace's plugin reaches it through a mounted folder."
    )
    args: tuple[Argument, ...] = rolls(
        "More arguments for vLLM's OpenAI server. Refused are those that a field of this API or the operator "
        "sets, and those that spread a replica over nodes or pipeline stages.",
        (),
        max_length=64,
        json_schema_extra={
            "x-kubernetes-validations": reserved.argument_rules(),
            **ATOMIC,
        },
    )
    env: tuple[Variable, ...] = rolls(
        "Environment variables of the engine; those that a field of this API or the operator sets are "
        "refused.",
        (),
        max_length=64,
        json_schema_extra={
            "x-kubernetes-validations": reserved.variable_rules(),
            **list_map("name"),
        },
    )
    env_from: tuple[VariablesSource, ...] = rolls(
        "Secrets and ConfigMaps whose keys become environment variables of the engine. Those in env, and "
        "those that the operator sets, go before them. A key VLLM_PLUGINS keeps vLLM from loading "
        "Headrace's plugin.",
        (),
        max_length=32,
        json_schema_extra=ATOMIC,
    )
    tensor_parallel_size: Integer = rolls("Devices that one replica spreads the model over.", 1, ge=1, le=64)
    max_model_len: Integer | None = rolls(
        "Longest prompt plus output, in tokens; unset means the model's own limit.", None, ge=1, le=16_777_216
    )
    gpu_memory_utilization_percent: Integer | None = rolls(
        "Share of device memory that vLLM may use; unset means vLLM's default.", None, ge=1, le=100
    )
    block_size: Integer | None = rolls(
        "Tokens per KV-cache block; unset means vLLM's default for the device.", None, ge=1, le=1024
    )
    start_timeout: Duration = rolls(
        "How long a replica may take from the start of its container until it serves: to download, load and "
        "compile the model. One that takes longer is started again. At least 10s, at most 168h.",
        "1h",
    )

    model_config = ruled(rule(_START_IN_BOUNDS, _START_BOUNDS, ".startTimeout"))

    @model_validator(mode="after")
    def _can_start(self) -> Engine:
        if not _SHORTEST_START <= milliseconds(self.start_timeout) <= _LONGEST_START:
            raise ValueError(_START_BOUNDS)
        variables = (variable.name for variable in self.env)
        wrong = reserved.find_reserved_argument(self.args) or reserved.find_reserved_variable(variables)
        if wrong:
            raise ValueError(wrong)
        return self


class CelSelector(Block):
    """A condition in CEL."""

    expression: Annotated[str, StringConstraints(min_length=1, max_length=10_240)] = rolls(
        "What a device must fulfil, such as `device.attributes['gpu.nvidia.com'].productName == "
        "'NVIDIA H100 80GB HBM3'`."
    )


class DeviceSelector(Block):
    """What a device must fulfil."""

    cel: CelSelector = rolls("The condition, in CEL, as in a ResourceClaim.")


class DevicePlugin(Block):
    """Devices of a device plugin, asked for as an extended resource."""

    resource_name: DeviceResource = rolls("Extended resource of the device plugin, such as amd.com/gpu.")


class Dra(Block):
    """Devices of a DRA driver, asked for by a ResourceClaim."""

    device_class_name: ObjectName = rolls("DeviceClass of the claim, such as gpu.nvidia.com.")
    selectors: tuple[DeviceSelector, ...] = rolls(
        "Conditions that each device must fulfil, all of them.",
        (),
        max_length=32,
        json_schema_extra=ATOMIC,
    )


_DEFAULT_RESOURCE = "nvidia.com/gpu"
_ONE_WAY = (
    "accelerator.devicePlugin and accelerator.dra exclude each other: keep one and set the other to null"
)
_NO_DEVICES = "accelerator.type CPU has no devices: set accelerator.devicePlugin and accelerator.dra to null"


class Accelerator(Block):
    """The device that one replica needs; how many is `engine.tensorParallelSize`."""

    type: Literal["GPU", "CPU"] = rolls("GPU, or CPU to run vLLM without a device.", "GPU")
    device_plugin: DevicePlugin | None = rolls(
        "Ask for GPUs by a device plugin. With type GPU, and neither this nor dra: nvidia.com/gpu.", None
    )
    dra: Dra | None = rolls(
        "Ask for GPUs by dynamic resource allocation, which needs Kubernetes 1.34. With type GPU.", None
    )

    model_config = ruled(
        rule("!(has(self.devicePlugin) && has(self.dra))", _ONE_WAY, ".dra"),
        rule("self.type != 'CPU' || !(has(self.devicePlugin) || has(self.dra))", _NO_DEVICES, ".type"),
    )

    @model_validator(mode="after")
    def _one_way(self) -> Accelerator:
        if self.device_plugin and self.dra:
            raise ValueError(_ONE_WAY)
        if self.type == "CPU" and (self.device_plugin or self.dra):
            raise ValueError(_NO_DEVICES)
        return self

    @property
    def extended_resource(self) -> str | None:
        """What is asked of a device plugin; None on the CPU and with DRA."""
        if self.type == "CPU" or self.dra:
            return None
        return self.device_plugin.resource_name if self.device_plugin else _DEFAULT_RESOURCE


EXTENDED_RESOURCE = (
    "(has(self.accelerator.devicePlugin) ? self.accelerator.devicePlugin.resourceName : "
    f"'{_DEFAULT_RESOURCE}')"
)
"""CEL: `Accelerator.extended_resource` where it is not None, as seen from the spec."""
