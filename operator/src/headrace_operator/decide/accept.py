"""What the schema cannot know: whether this operator accepts a spec. Pure."""

from __future__ import annotations

from headrace_operator.api import ROUTE_KIND, LLMService, Reason
from headrace_operator.errors import RefusedError
from headrace_operator.settings import Settings


def check_accepted(service: LLMService, settings: Settings) -> None:
    """Raise RefusedError that names the field and the fix."""
    for error in find_objections(service, settings).values():
        raise error


def find_objections(service: LLMService, settings: Settings) -> dict[str, RefusedError]:
    """Find what stands against the service, by the kind of the object that it stands against."""
    found = {}
    for volume in service.spec.pod_template.volumes:
        if volume.host_path is not None and not settings.allow_host_path:
            found["Deployment"] = RefusedError(
                Reason.HOST_PATH_NOT_ALLOWED,
                f"spec.podTemplate.volumes: {volume.name} is a hostPath: use a PersistentVolumeClaim, "
                "or have the "
                "operator installed with operator.allowHostPath=true",
            )
    account = service.spec.pod_template.service_account_name
    if account not in {None, "default"} and not settings.allow_service_account:
        found["Deployment"] = RefusedError(
            Reason.SERVICE_ACCOUNT_NOT_ALLOWED,
            f"spec.podTemplate.serviceAccountName: {account}: leave the field out, or have the operator "
            "installed with operator.allowServiceAccountName=true",
        )
    field = service.spec.routing.needs_api_keys
    if field and not settings.gateway_api_keys:
        found[ROUTE_KIND] = RefusedError(
            Reason.API_KEYS_REQUIRED,
            f"{field}: the gateway asks its clients for no API keys, so it cannot tell them apart: it lets "
            "nobody use what only some may use, and keeps no limit of single clients; leave the field out, "
            "or install the chart with gateway.apiKeys.secretName",
        )
    return found
