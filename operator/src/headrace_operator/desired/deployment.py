"""Deployment NAME: the replicas, and the rule that only the service's own changes replace its pods.

The Deployment records what its template was made from (`inputs-hash`), the rendered template itself
(`template-hash`) and the sidecar image in it (`runtime`):

| the service's inputs | this operator's rendering | template                                              |
|----------------------|---------------------------|-------------------------------------------------------|
| changed              | any                       | rendered anew, with the operator's own sidecar image  |
| as recorded          | as recorded               | rendered anew, with the recorded image: heals edits   |
| as recorded          | differs (other release)   | the live one, untouched: an upgrade restarts no engine |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace_operator import names
from headrace_operator.api import LLMService
from headrace_operator.desired.engine import START_SECONDS
from headrace_operator.desired.manifest import Manifest, annotated, content_hash, manifest
from headrace_operator.desired.pod import pod_template
from headrace_operator.settings import Settings


def deployment(service: LLMService, settings: Settings, live: Mapping[str, Any] | None) -> Manifest:
    """The Deployment, given the one that runs now (None: none does)."""
    image, template, rendered = _template(service, settings, live)
    disruption = service.spec.disruption
    wanted = manifest(
        service,
        "apps/v1",
        "Deployment",
        service.key.name,
        spec={
            "replicas": service.replicas,
            "selector": {"matchLabels": names.pod_labels(service.key)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "maxSurge": disruption.max_surge,
                    "maxUnavailable": disruption.max_unavailable,
                },
            },
            "progressDeadlineSeconds": START_SECONDS + 600,  # a start that is still allowed is still progress
            "revisionHistoryLimit": 3,
            "template": template,
        },
    )
    return annotated(
        wanted,
        {names.INPUTS_HASH: inputs_hash(service), names.TEMPLATE_HASH: rendered, names.RUNTIME: image},
    )


def inputs_hash(service: LLMService) -> str:
    """Identifies what of the spec shapes pods. Defaults are left out, so that a new field changes nothing."""
    spec = service.spec
    blocks = {
        "model": spec.model,
        "engine": spec.engine,
        "accelerator": spec.accelerator,
        "podTemplate": spec.pod_template,
    }
    content = {
        name: block.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        for name, block in blocks.items()
    }
    return content_hash({**content, "drainTimeout": spec.disruption.drain_timeout})


def recorded(live: Mapping[str, Any] | None, annotation: str) -> str | None:
    """What the live Deployment says of itself."""
    return ((live or {}).get("metadata", {}).get("annotations") or {}).get(annotation)


def _template(
    service: LLMService, settings: Settings, live: Mapping[str, Any] | None
) -> tuple[str, dict[str, Any], str]:
    """Sidecar image, template, and the hash of its rendering."""
    pinned = recorded(live, names.RUNTIME)
    if live is not None and pinned and recorded(live, names.INPUTS_HASH) == inputs_hash(service):
        template = pod_template(service, pinned, settings)
        rendered = recorded(live, names.TEMPLATE_HASH)
        if rendered and content_hash(template) != rendered:
            return pinned, live["spec"]["template"], rendered
        return pinned, template, content_hash(template)
    template = pod_template(service, settings.sidecar_image, settings)
    return settings.sidecar_image, template, content_hash(template)
