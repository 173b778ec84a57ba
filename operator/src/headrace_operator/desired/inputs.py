"""What of a spec shapes pods: a change of it replaces them."""

from __future__ import annotations

import dataclasses

from headrace_operator.api import LLMService
from headrace_operator.api.bodies import Body, JsonObject
from headrace_operator.desired.manifest import content_hash

_BLOCKS = {"model": "model", "engine": "engine", "accelerator": "accelerator", "podTemplate": "pod_template"}
_DRAIN = "drainTimeout"
_CLAIM = "groupClaim"


def input_blocks(service: LLMService) -> JsonObject:
    """Return the blocks as JSON, without defaults, so that a field of a new release changes nothing."""
    content = {
        name: getattr(service.spec, field).model_dump(mode="json", by_alias=True, exclude_defaults=True)
        for name, field in _BLOCKS.items()
    }
    content[_DRAIN] = service.spec.disruption.drain_timeout
    return content | ({_CLAIM: service.group_claim} if service.group_claim else {})


def inputs_hash(service: LLMService) -> str:
    """Return a hash that tells the blocks of two specs apart."""
    return content_hash(input_blocks(service))


def with_blocks(service: LLMService, content: Body) -> LLMService:
    """Return the service with other blocks; ValueError or KeyError if this release cannot read them."""
    spec = service.spec
    update = {
        field: type(getattr(spec, field)).model_validate(content[name]) for name, field in _BLOCKS.items()
    }
    update["disruption"] = spec.disruption.model_copy(update={"drain_timeout": content[_DRAIN]})
    return dataclasses.replace(service, spec=spec.model_copy(update=update), group_claim=claim_in(content))


def claim_in(content: Body | None) -> str | None:
    """Return the ResourceClaim of a group that blocks name; None if they name none."""
    claim = (content or {}).get(_CLAIM)
    return claim if isinstance(claim, str) else None


def changed_fields(before: Body, after: Body) -> list[str]:
    """Return the fields of the spec whose blocks differ, as a user writes them."""
    fields = {name: f"spec.{name}" for name in _BLOCKS} | {
        _DRAIN: "spec.disruption.drainTimeout",
        _CLAIM: "spec.groups of its GPUPool",
    }
    return [field for name, field in fields.items() if before.get(name) != after.get(name)]
