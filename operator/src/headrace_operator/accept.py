"""What the schema cannot know: whether this operator accepts a spec. Pure."""

from __future__ import annotations

from headrace_operator.api import LLMService, Reason
from headrace_operator.errors import RefusedError
from headrace_operator.settings import Settings


def check(service: LLMService, settings: Settings) -> None:
    """Raise RefusedError that names the field and the fix."""
    for volume in service.spec.pod_template.volumes:
        if volume.host_path is not None and not settings.allow_host_path:
            raise RefusedError(
                Reason.HOST_PATH_NOT_ALLOWED,
                f"spec.podTemplate.volumes: {volume.name} is a hostPath: use a PersistentVolumeClaim, "
                "or have the "
                "operator installed with operator.allowHostPath=true",
            )
    field = service.spec.routing.needs_api_keys
    if field and not settings.gateway_api_keys:
        raise RefusedError(
            Reason.API_KEYS_REQUIRED,
            f"{field}: the gateway asks its clients for no API keys, so it cannot tell them apart: leave it "
            "out, or install the chart with gateway.apiKeys.secretName",
        )
