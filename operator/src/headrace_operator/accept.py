"""What the schema cannot know: whether this operator, among these other services, accepts a spec. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from headrace_operator.api import LLMService, Reason
from headrace_operator.claims import check_claim
from headrace_operator.errors import RefusedError
from headrace_operator.settings import Settings


def check(service: LLMService, others: Iterable[LLMService], settings: Settings) -> None:
    """Raise RefusedError that names the field and the fix."""
    for volume in service.spec.pod_template.volumes:
        if volume.host_path is not None and not settings.allow_host_path:
            raise RefusedError(
                Reason.HOST_PATH_NOT_ALLOWED,
                f"spec.podTemplate.volumes: {volume.name} is a hostPath: use a PersistentVolumeClaim, "
                "or have the "
                "operator installed with operator.allowHostPath=true",
            )
    check_claim(service, others)
