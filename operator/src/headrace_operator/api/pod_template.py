"""The part of an engine pod that a user may shape: where it runs, what it may use, what it mounts.

Everything absent here (privilege, host namespaces, other containers) is absent on purpose: who may write an
LLMService may create ordinary pods in its namespace and no more.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from headrace_operator.api.base import ATOMIC, Block, Integer, Text, Verbatim, list_map, rolls, rule, ruled
from headrace_operator.api.formats import (
    LONGEST_KEY,
    LabelValue,
    ObjectName,
    TaintKey,
    TopologyKey,
    check_keys,
    keys_rule,
    matches,
)
from headrace_operator.api.resources import Resources
from headrace_operator.api.volumes import SecretName, Volume, VolumeMount

# Annotations by which container runtimes loosen a container's isolation or give it devices of the node.
_PRIVILEGES = (
    "container.apparmor.security.beta.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
    "cdi.k8s.io/",
    "io.kubernetes.cri-o.",
    "io.containerd.",
    "io.katacontainers.",
)
NO_PRIVILEGES = (
    f"annotations that begin with {', '.join(_PRIVILEGES)} loosen a container's isolation: remove them"
)

# Annotations that mean something to the API server or the kubelet, and that no template may have.
_MEANT_FOR_PODS = ("kubernetes.io/config.", "scheduler.alpha.kubernetes.io/")
_PODS_ONLY = f"annotations that begin with {' or '.join(_MEANT_FOR_PODS)} are no template's: remove them"
_COST = "controller.kubernetes.io/pod-deletion-cost"
_COST_ADVICE = f"{_COST} must be a whole number of at most nine digits"
_COST_FORM = "(0|-?[1-9][0-9]{0,8})"
_COST_RULE = f"!('{_COST}' in self) || " + matches(_COST_FORM, f"self['{_COST}']")
_LONGEST_ANNOTATIONS = 128 * 1024  # bytes; half of what an object may have
_TOO_LONG = "all annotations together may have 128 KiB"
_OURS = ("headrace.dev/", "app.kubernetes.io/")
_OURS_ADVICE = f"{' and '.join(_OURS)} keys belong to the operator: remove them from podTemplate"
_NOT_OURS = rule(f"self.all(k, !{list(_OURS)}.exists(p, k.startsWith(p)))", _OURS_ADVICE)
_LARGEST_ID = 2**31 - 1

MetaKey = Annotated[str, StringConstraints(max_length=LONGEST_KEY)]


_NO_PRIVILEGES = rule(
    f"self.all(k, !{list(_PRIVILEGES)}.exists(p, k.startsWith(p)))",
    NO_PRIVILEGES,
)


class Metadata(Block):
    """Labels and annotations of the pods."""

    labels: dict[MetaKey, LabelValue] = rolls(
        "Labels added to the pods.",
        {},
        max_length=32,
        json_schema_extra={"x-kubernetes-validations": [_NOT_OURS, keys_rule()]},
    )
    annotations: dict[MetaKey, Text] = rolls(
        "Annotations added to the pods.",
        {},
        max_length=32,
        json_schema_extra={
            "x-kubernetes-validations": [
                _NOT_OURS,
                _NO_PRIVILEGES,
                keys_rule("k.lowerAscii()"),
                rule(f"self.all(k, !{list(_MEANT_FOR_PODS)}.exists(p, k.startsWith(p)))", _PODS_ONLY),
                rule(_COST_RULE, _COST_ADVICE),
                rule(
                    f"self.map(k, bytes(k).size() + bytes(self[k]).size()).sum() <= {_LONGEST_ANNOTATIONS}",
                    _TOO_LONG,
                ),
            ]
        },
    )

    @model_validator(mode="after")
    def _usable(self) -> Metadata:
        check_keys([*self.labels, *(key.lower() for key in self.annotations)])
        if any(key.startswith(_OURS) for key in (*self.labels, *self.annotations)):
            raise ValueError(_OURS_ADVICE)
        if any(key.startswith(_PRIVILEGES) for key in self.annotations):
            raise ValueError(NO_PRIVILEGES)
        if any(key.startswith(_MEANT_FOR_PODS) for key in self.annotations):
            raise ValueError(_PODS_ONLY)
        if not re.fullmatch(_COST_FORM, self.annotations.get(_COST, "0")):
            raise ValueError(_COST_ADVICE)
        if (
            sum(len(text.encode()) for item in self.annotations.items() for text in item)
            > _LONGEST_ANNOTATIONS
        ):
            raise ValueError(_TOO_LONG)
        return self


_NEEDS_KEY = "without a key, operator must be Exists: such a toleration is for every taint"
_NO_VALUE = "with operator Exists, leave value out"
_SECONDS_OF = "tolerationSeconds goes with effect NoExecute"


class Toleration(Block):
    """A taint that the pods tolerate."""

    key: TaintKey | None = rolls("Taint's key; unset means any.", None)
    operator: Literal["Exists", "Equal"] = rolls("How `value` is compared.", "Equal")
    value: LabelValue | None = rolls("Taint's value.", None)
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = rolls(
        "Taint's effect; unset means any.", None
    )
    toleration_seconds: Integer | None = rolls(
        "How long NoExecute is tolerated; unset means for ever.", None, ge=0, le=_LARGEST_ID
    )

    model_config = ruled(
        rule("self.operator == 'Exists' || (has(self.key) && self.key != '')", _NEEDS_KEY, ".key"),
        rule("self.operator != 'Exists' || !has(self.value) || self.value == ''", _NO_VALUE, ".value"),
        rule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            _SECONDS_OF,
            ".tolerationSeconds",
        ),
    )

    @model_validator(mode="after")
    def _possible(self) -> Toleration:
        if self.operator == "Equal" and not self.key:
            raise ValueError(_NEEDS_KEY)
        if self.operator == "Exists" and self.value:
            raise ValueError(_NO_VALUE)
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError(_SECONDS_OF)
        return self


_DOMAINS = "minDomains goes with whenUnsatisfiable DoNotSchedule"


class SpreadConstraint(Block):
    """How evenly the pods lie over nodes, zones or another of the nodes' labels."""

    max_skew: Integer = rolls(
        "By how many pods the fullest part may exceed the emptiest.", ge=1, le=_LARGEST_ID
    )
    topology_key: TopologyKey = rolls(
        "Label of nodes by which they fall into parts, such as topology.kubernetes.io/zone."
    )
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = rolls(
        "What happens to a pod that no node can take without more skew."
    )
    min_domains: Integer | None = rolls(
        "With fewer parts than this the emptiest counts as empty; unset means 1. With DoNotSchedule.",
        None,
        ge=1,
        le=_LARGEST_ID,
    )
    label_selector: Verbatim | None = rolls(
        "Which pods are counted, as in a pod; unset means the engine pods of this service.", None
    )
    match_label_keys: tuple[MetaKey, ...] | None = rolls(
        "Labels of the new pod that counted pods must have alike: pod-template-hash counts those of the same "
        "rollout alone.",
        None,
        max_length=16,
        json_schema_extra=ATOMIC,
    )
    node_affinity_policy: Literal["Honor", "Ignore"] | None = rolls(
        "Whether only nodes that the pod may run on count; unset means Honor.", None
    )
    node_taints_policy: Literal["Honor", "Ignore"] | None = rolls(
        "Whether nodes whose taints the pod does not tolerate are left out; unset means Ignore.", None
    )

    model_config = ruled(
        rule("!has(self.minDomains) || self.whenUnsatisfiable == 'DoNotSchedule'", _DOMAINS, ".minDomains")
    )

    @model_validator(mode="after")
    def _possible(self) -> SpreadConstraint:
        if self.min_domains is not None and self.when_unsatisfiable != "DoNotSchedule":
            raise ValueError(_DOMAINS)
        return self


_ROOT = "runAsNonRoot with runAsUser 0 can never start: set another user, or leave runAsNonRoot out"
Id = Annotated[Integer, Field(ge=0, le=_LARGEST_ID)]


class SecurityContext(Block):
    """User and groups of the engine; privilege can only be taken away."""

    run_as_user: Id | None = rolls("User id of the engine; unset means the image's.", None)
    run_as_group: Id | None = rolls("Group id of the engine; unset means the image's.", None)
    run_as_non_root: bool = rolls(
        "Refuse to start as root, and drop all capabilities (Pod Security level `restricted`).", default=False
    )
    fs_group: Id | None = rolls("Group that owns the pod's volumes.", None)
    supplemental_groups: tuple[Id, ...] = rolls(
        "More groups of the engine.", (), max_length=16, json_schema_extra=ATOMIC
    )
    read_only_root_filesystem: bool = rolls("Whether the image's files are read-only.", default=False)

    model_config = ruled(
        rule("!self.runAsNonRoot || !has(self.runAsUser) || self.runAsUser != 0", _ROOT, ".runAsUser")
    )

    @model_validator(mode="after")
    def _can_start(self) -> SecurityContext:
        if self.run_as_non_root and self.run_as_user == 0:
            raise ValueError(_ROOT)
        return self


_UNMOUNTED = "each entry of podTemplate.volumeMounts must name a volume of podTemplate.volumes"


class PodTemplate(Block):
    """A restricted patch over the pods that the operator renders."""

    metadata: Metadata = rolls("Labels and annotations.", Metadata())
    node_selector: dict[MetaKey, LabelValue] = rolls(
        "Labels that a node must have.",
        {},
        max_length=32,
        json_schema_extra={"x-kubernetes-validations": [keys_rule()]},
    )
    tolerations: tuple[Toleration, ...] = rolls(
        "Taints that the pods tolerate.", (), max_length=32, json_schema_extra=ATOMIC
    )
    affinity: Verbatim | None = rolls("Node and pod affinity, as in a pod.", None)
    topology_spread_constraints: tuple[SpreadConstraint, ...] = rolls(
        "How evenly the pods lie over nodes or zones.",
        (),
        max_length=8,
        json_schema_extra=list_map("topologyKey", "whenUnsatisfiable"),
    )
    scheduler_name: ObjectName | None = rolls(
        "Scheduler that places the pods; unset means the cluster's default.", None
    )
    service_account_name: ObjectName | None = rolls(
        "ServiceAccount of the pods, for its registry credentials and for a cloud's workload identity: its "
        "token is not mounted. Unset means default; refused unless the operator allows it.",
        None,
    )
    priority_class_name: ObjectName | None = rolls(
        "PriorityClass of the pods; unset means the cluster's default.", None
    )
    runtime_class_name: ObjectName | None = rolls(
        "RuntimeClass of the pods; unset means the cluster's default.", None
    )
    image_pull_secrets: tuple[SecretName, ...] = rolls(
        "Registry credentials for both images.",
        (),
        max_length=16,
        json_schema_extra=list_map("name"),
    )
    resources: Resources = rolls("Resources of the engine container.", Resources())
    volumes: tuple[Volume, ...] = rolls(
        "More volumes.",
        (),
        max_length=32,
        json_schema_extra=list_map("name"),
    )
    volume_mounts: tuple[VolumeMount, ...] = rolls(
        "Where the engine mounts them.",
        (),
        max_length=32,
        json_schema_extra=list_map("mountPath"),
    )
    security_context: SecurityContext = rolls(
        "User and groups of the engine. With `runAsUser`, or a root that cannot be written, its HOME is "
        "/tmp, in a volume of its own.",
        SecurityContext(),
    )

    model_config = ruled(
        rule(
            "!has(self.volumeMounts) || self.volumeMounts.all(m, has(self.volumes) && "
            "self.volumes.exists(v, v.name == m.name))",
            _UNMOUNTED,
            ".volumeMounts",
        )
    )

    @model_validator(mode="after")
    def _complete(self) -> PodTemplate:
        check_keys(self.node_selector)
        if not {mount.name for mount in self.volume_mounts} <= {volume.name for volume in self.volumes}:
            raise ValueError(_UNMOUNTED)
        return self
