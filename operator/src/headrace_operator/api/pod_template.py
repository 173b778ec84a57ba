"""The part of an engine pod that a user may shape: where it runs, what it may use, what it mounts.

Everything absent here (service account, privilege, host namespaces, other containers) is absent on purpose:
who may write an LLMService may create ordinary pods in its namespace and no more.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints, model_validator

from headrace_operator.api.base import (
    Block,
    Integer,
    ObjectName,
    Quantity,
    Text,
    Verbatim,
    Word,
    rolls,
    rule,
    ruled,
)

RESERVED_VOLUMES = ("headrace", "headrace-home", "policy", "shm", "model", "cache")
_RESERVED_PATHS = ("/headrace", "/dev/shm", "/models", "/cache")  # noqa: S108
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

PLAIN_PATH = "write the path without . and .. in it"
ONE_SOURCE = "set exactly one of configMap, secret, emptyDir, persistentVolumeClaim and hostPath"

MetaKey = Annotated[str, StringConstraints(max_length=317)]
LabelValue = Annotated[str, StringConstraints(max_length=63)]
_NOT_OURS = rule(
    "self.all(k, !k.startsWith('headrace.dev/') && !k.startsWith('app.kubernetes.io/'))",
    "headrace.dev/ and app.kubernetes.io/ keys belong to the operator: remove them from podTemplate",
)


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
        json_schema_extra={"x-kubernetes-validations": [_NOT_OURS]},
    )
    annotations: dict[MetaKey, Text] = rolls(
        "Annotations added to the pods.",
        {},
        max_length=32,
        json_schema_extra={"x-kubernetes-validations": [_NOT_OURS, _NO_PRIVILEGES]},
    )

    @model_validator(mode="after")
    def _no_privileges(self) -> Metadata:
        if any(key.startswith(_PRIVILEGES) for key in self.annotations):
            raise ValueError(NO_PRIVILEGES)
        return self


class Toleration(Block):
    """A taint that the pods tolerate."""

    key: Annotated[str, StringConstraints(max_length=317)] | None = rolls(
        "Taint's key; unset means any.", None
    )
    operator: Literal["Exists", "Equal"] = rolls("How `value` is compared.", "Equal")
    value: Annotated[str, StringConstraints(max_length=63)] | None = rolls("Taint's value.", None)
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = rolls(
        "Taint's effect; unset means any.", None
    )
    toleration_seconds: Integer | None = rolls(
        "How long NoExecute is tolerated; unset means for ever.", None, ge=0
    )


class Resources(Block):
    """CPU, memory and other resources of the engine container; the operator adds the accelerator."""

    requests: dict[Word, Quantity] = rolls("What the scheduler sets aside.", {}, max_length=16)
    limits: dict[Word, Quantity] = rolls("What the container may use at most.", {}, max_length=16)


class Volume(Block):
    """A volume of the pods, from exactly one source."""

    name: Annotated[
        str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    ] = rolls("Its name.")
    config_map: Verbatim | None = rolls("A ConfigMap, as in a pod.", None)
    secret: Verbatim | None = rolls("A Secret, as in a pod.", None)
    empty_dir: Verbatim | None = rolls("An empty folder, as in a pod.", None)
    persistent_volume_claim: Verbatim | None = rolls("A PersistentVolumeClaim, as in a pod.", None)
    host_path: Verbatim | None = rolls(
        "A folder of the node, as in a pod; refused unless the operator allows it.", None
    )

    model_config = ruled(
        rule(
            "[has(self.configMap), has(self.secret), has(self.emptyDir), has(self.persistentVolumeClaim), "
            "has(self.hostPath)].filter(x, x).size() == 1",
            ONE_SOURCE,
        ),
        rule(
            f"!(self.name in {list(RESERVED_VOLUMES)})",
            f"the volume names {', '.join(RESERVED_VOLUMES)} belong to the operator: choose another",
        ),
    )

    @model_validator(mode="after")
    def _one_source(self) -> Volume:
        given = (self.config_map, self.secret, self.empty_dir, self.persistent_volume_claim, self.host_path)
        if sum(source is not None for source in given) != 1:
            raise ValueError(ONE_SOURCE)
        return self


class VolumeMount(Block):
    """Where the engine sees a volume."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=63)] = rolls("Name of the volume.")
    mount_path: Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^(/[^/]+)+/?$")] = (
        rolls("Absolute path in the engine container, without . and .. in it.")
    )
    sub_path: Annotated[str, StringConstraints(max_length=512)] | None = rolls(
        "Folder within the volume.", None
    )
    read_only: bool = rolls("Whether the engine may not write to it.", default=False)

    model_config = ruled(
        rule(
            f"{list(_RESERVED_PATHS)}.all(p, self.mountPath != p && !self.mountPath.startsWith(p + '/'))",
            f"the paths {', '.join(_RESERVED_PATHS)} belong to the operator: mount elsewhere",
        ),
        rule("!self.mountPath.split('/').exists(p, p in ['.', '..'])", PLAIN_PATH),
    )

    @model_validator(mode="after")
    def _plain_path(self) -> VolumeMount:
        if {".", ".."} & set(self.mount_path.split("/")):
            raise ValueError(PLAIN_PATH)
        return self


class SecurityContext(Block):
    """User and groups of the engine; privilege can only be taken away."""

    run_as_user: Integer | None = rolls("User id of the engine; unset means the image's.", None, ge=0)
    run_as_group: Integer | None = rolls("Group id of the engine; unset means the image's.", None, ge=0)
    run_as_non_root: bool = rolls(
        "Refuse to start as root, and drop all capabilities (Pod Security level `restricted`).", default=False
    )
    fs_group: Integer | None = rolls("Group that owns the pod's volumes.", None, ge=0)
    supplemental_groups: tuple[Integer, ...] = rolls("More groups of the engine.", (), max_length=16)
    read_only_root_filesystem: bool = rolls("Whether the image's files are read-only.", default=False)


class PullSecret(Block):
    """A Secret with registry credentials."""

    name: ObjectName = rolls("Name of the Secret, in the same namespace.")


class PodTemplate(Block):
    """A restricted patch over the pods that the operator renders."""

    metadata: Metadata = rolls("Labels and annotations.", Metadata())
    node_selector: dict[MetaKey, LabelValue] = rolls("Labels that a node must have.", {}, max_length=32)
    tolerations: tuple[Toleration, ...] = rolls("Taints that the pods tolerate.", (), max_length=32)
    affinity: Verbatim | None = rolls("Node and pod affinity, as in a pod.", None)
    priority_class_name: ObjectName | None = rolls(
        "PriorityClass of the pods; unset means the cluster's default.", None
    )
    runtime_class_name: ObjectName | None = rolls(
        "RuntimeClass of the pods; unset means the cluster's default.", None
    )
    image_pull_secrets: tuple[PullSecret, ...] = rolls(
        "Registry credentials for both images.", (), max_length=16
    )
    resources: Resources = rolls("Resources of the engine container.", Resources())
    volumes: tuple[Volume, ...] = rolls(
        "More volumes.",
        (),
        max_length=32,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    volume_mounts: tuple[VolumeMount, ...] = rolls(
        "Where the engine mounts them.",
        (),
        max_length=32,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["mountPath"]},
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
            "each entry of podTemplate.volumeMounts must name a volume of podTemplate.volumes",
        )
    )
