"""Volumes of the engine pods: their sources, as in a pod, and where the engine sees them.

What is unset here stays unset in the pod.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints, model_validator

from headrace_operator.api.base import (
    ATOMIC,
    Block,
    Integer,
    Text,
    check_one,
    exactly_one,
    rolls,
    rule,
    ruled,
)
from headrace_operator.api.formats import (
    ConfigKey,
    CsiDriver,
    FilePath,
    Image,
    InnerPath,
    NodePath,
    ObjectName,
    Quantity,
)

RESERVED_VOLUMES = ("headrace", "headrace-home", "policy", "shm", "model", "cache")
_RESERVED_PATHS = ("/headrace", "/dev/shm", "/models", "/cache")  # noqa: S108
_NAME_TAKEN = f"the volume names {', '.join(RESERVED_VOLUMES)} belong to the operator: choose another"
_PATH_TAKEN = f"the paths {', '.join(_RESERVED_PATHS)} belong to the operator: mount elsewhere"
PLAIN_PATH = "write the path without . and .. in it"
_SOURCES = ("configMap", "secret", "emptyDir", "persistentVolumeClaim", "hostPath", "image", "csi")
ONE_SOURCE = f"set exactly one of {', '.join(_SOURCES[:-1])} and {_SOURCES[-1]}"


AttributeName = Annotated[str, StringConstraints(min_length=1, max_length=253)]


class KeyToPath(Block):
    """One key of a Secret or ConfigMap as a file."""

    key: ConfigKey = rolls("The key.")
    path: FilePath = rolls("Path of the file within the volume.")
    mode: Integer | None = rolls(
        "Permissions of the file, as a decimal number; unset means defaultMode.", None, ge=0, le=0o777
    )


class ConfigMapSource(Block):
    """A ConfigMap as files."""

    name: ObjectName = rolls("Name of the ConfigMap, in the same namespace.")
    items: tuple[KeyToPath, ...] | None = rolls(
        "Its keys to be mounted; unset means all.", None, max_length=32, json_schema_extra=ATOMIC
    )
    default_mode: Integer | None = rolls(
        "Permissions of the files, as a decimal number; unset means 420 (0644).", None, ge=0, le=0o777
    )
    optional: bool | None = rolls("Whether it may be missing; unset means that it may not.", None)


class SecretSource(Block):
    """A Secret as files."""

    secret_name: ObjectName = rolls("Name of the Secret, in the same namespace.")
    items: tuple[KeyToPath, ...] | None = rolls(
        "Its keys to be mounted; unset means all.", None, max_length=32, json_schema_extra=ATOMIC
    )
    default_mode: Integer | None = rolls(
        "Permissions of the files, as a decimal number; unset means 420 (0644).", None, ge=0, le=0o777
    )
    optional: bool | None = rolls("Whether it may be missing; unset means that it may not.", None)


class EmptyDirSource(Block):
    """An empty folder that goes with the pod."""

    medium: Literal["", "Memory", "HugePages", "HugePages-2Mi", "HugePages-1Gi"] | None = rolls(
        "Memory for a folder in memory; unset means the node's disk.", None
    )
    size_limit: Quantity | None = rolls("How much it may hold; unset means as much as there is.", None)


class ClaimSource(Block):
    """A PersistentVolumeClaim."""

    claim_name: ObjectName = rolls("Name of the claim, in the same namespace.")
    read_only: bool | None = rolls("Whether it is mounted read-only; unset means that it is not.", None)


class HostPathSource(Block):
    """A file or folder of the node."""

    path: NodePath = rolls("Its path, without .. in it.")
    type: (
        Literal[
            "",
            "DirectoryOrCreate",
            "Directory",
            "FileOrCreate",
            "File",
            "Socket",
            "CharDevice",
            "BlockDevice",
        ]
        | None
    ) = rolls("What must be there; unset means that nothing is checked.", None)


class ImageSource(Block):
    """The files of a container image or an OCI artifact, read-only."""

    reference: Image = rolls("The image, such as registry.example.com/models/llama:3.")
    pull_policy: Literal["Always", "Never", "IfNotPresent"] | None = rolls(
        "When the node fetches it; unset means Always for the tag latest, else IfNotPresent.", None
    )


class SecretName(Block):
    """A Secret."""

    name: ObjectName = rolls("Name of the Secret, in the same namespace.")


class CsiSource(Block):
    """A volume that a CSI driver makes for the pod and removes with it."""

    driver: CsiDriver = rolls("Name of the driver, which must allow such volumes.")
    read_only: bool | None = rolls("Whether it is mounted read-only; unset means that it is not.", None)
    fs_type: Annotated[str, StringConstraints(max_length=64)] | None = rolls(
        "File system; unset means the driver's default.", None
    )
    volume_attributes: dict[AttributeName, Text] | None = rolls(
        "What the driver is told.", None, max_length=32
    )
    node_publish_secret_ref: SecretName | None = rolls("Secret that the driver is given.", None)


class Volume(Block):
    """A volume of the pods, from exactly one source."""

    name: Annotated[
        str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    ] = rolls("Its name.")
    config_map: ConfigMapSource | None = rolls("A ConfigMap.", None)
    secret: SecretSource | None = rolls("A Secret.", None)
    empty_dir: EmptyDirSource | None = rolls("An empty folder.", None)
    persistent_volume_claim: ClaimSource | None = rolls("A PersistentVolumeClaim.", None)
    host_path: HostPathSource | None = rolls(
        "A file or folder of the node; refused unless the operator allows it.", None
    )
    image: ImageSource | None = rolls(
        "The files of an image, such as weights in a registry; needs Kubernetes 1.35, or the feature gate "
        "ImageVolume before.",
        None,
    )
    csi: CsiSource | None = rolls("A volume of a CSI driver that lives as long as the pod.", None)

    model_config = ruled(
        exactly_one(_SOURCES, ONE_SOURCE),
        rule(f"!(self.name in {list(RESERVED_VOLUMES)})", _NAME_TAKEN, ".name"),
    )

    @model_validator(mode="after")
    def _one_source(self) -> Volume:
        given = (self.config_map, self.secret, self.empty_dir, self.persistent_volume_claim, self.host_path)
        check_one((*given, self.image, self.csi), ONE_SOURCE)
        if self.name in RESERVED_VOLUMES:
            raise ValueError(_NAME_TAKEN)
        return self


class VolumeMount(Block):
    """Where the engine sees a volume."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=63)] = rolls("Name of the volume.")
    mount_path: Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^(/[^/:]+)+/?$")] = (
        rolls("Absolute path in the engine container, without :, . and .. in it.")
    )
    sub_path: InnerPath | None = rolls("Folder within the volume.", None)
    read_only: bool = rolls("Whether the engine may not write to it.", default=False)

    model_config = ruled(
        rule(
            f"{list(_RESERVED_PATHS)}.all(p, self.mountPath != p && !self.mountPath.startsWith(p + '/'))",
            _PATH_TAKEN,
            ".mountPath",
        ),
        rule("!self.mountPath.split('/').exists(p, p in ['.', '..'])", PLAIN_PATH, ".mountPath"),
    )

    @model_validator(mode="after")
    def _plain_path(self) -> VolumeMount:
        if {".", ".."} & set(self.mount_path.split("/")):
            raise ValueError(PLAIN_PATH)
        if any(self.mount_path == path or self.mount_path.startswith(path + "/") for path in _RESERVED_PATHS):
            raise ValueError(_PATH_TAKEN)
        return self
