"""The status of an LLMService, as the operator writes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from headrace_operator.api.base import Block, list_map

Long = Annotated[str, StringConstraints(max_length=4096)]


def seen(text: str, default: Any = None, **bounds: Any) -> Any:
    """Declare a field that the operator writes."""
    return Field(default, description=text, **bounds)


class StatusCondition(Block):
    """One aspect of the state."""

    type: Annotated[str, StringConstraints(max_length=64)] = seen("Aspect, such as Ready.", ...)
    status: Literal["True", "False", "Unknown"] = seen("Whether it holds.", ...)
    reason: Annotated[str, StringConstraints(max_length=64)] = seen("Why, in one CamelCase word.", ...)
    message: Long = seen("Why, in a sentence: what is wrong and what to do.", "")
    observed_generation: int = seen(
        "Generation of the spec that this tells of: the last one that was carried out, but for Accepted, "
        "Stalled and Degraded.",
        0,
        ge=0,
    )
    last_transition_time: Annotated[
        str, Field(json_schema_extra={"format": "date-time", "maxLength": 32})
    ] = seen("When `status` changed last.", ...)


class PolicyStatus(Block):
    """The scheduling policy that engines were told, and how far it got."""

    name: Annotated[str, StringConstraints(max_length=64)] = seen("Its name.", ...)
    hash: Annotated[str, StringConstraints(max_length=64)] = seen(
        "Identifies policy, settings and targets.", ...
    )
    applied_replicas: int = seen("Ready replicas that schedule by it.", 0, ge=0)
    in_force: Annotated[str, StringConstraints(max_length=1024)] | None = seen(
        "What ready engines schedule by, as they report it; several names where they differ. "
        "Stock: vLLM's own scheduler, without policies. Absent: no ready engine has reported."
    )


class ServiceStatus(Block):
    """What the operator last saw."""

    observed_generation: int = seen("Generation of the spec that this status is about.", 0, ge=0)
    url: Long | None = seen("Base URL of the OpenAI API of this service at the gateway.")
    desired_replicas: int = seen(
        "Pods that there should be: as the spec says, or the GPUPool that places the service.", 0, ge=0
    )
    replicas: int = seen("Pods of the service.", 0, ge=0)
    ready_replicas: int = seen("Pods that serve requests.", 0, ge=0)
    selector: Long | None = seen("Label selector of the pods, for the scale subresource.")
    runtime_version: Long | None = seen(
        "Sidecar image that brings plugin and policies into the pods; an upgrade of the operator "
        "leaves it alone, "
        "the service's own next rollout takes the new one."
    )
    models: tuple[Long, ...] = seen(
        "Names in requests that are the service's, whether they are served yet or not. A name belongs to "
        "the service that had it first, until that serves another instead or is deleted.",
        (),
        max_length=32,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    policy: PolicyStatus | None = seen("Scheduling policy.")
    conditions: tuple[StatusCondition, ...] = seen(
        "Accepted, Ready, Reconciling, Stalled, PolicyApplied, RoutingReady and Degraded.",
        (),
        max_length=16,
        json_schema_extra=list_map("type"),
    )
