"""What a GPUPool asks of a plan, and the plan: which services would share which GPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from headrace_operator.api.base import ATOMIC, Block, Integer, Word, list_map, live
from headrace_operator.api.status import Long, seen

MOST_PLANNED = 64
AUTO_GROUP = "auto-"  # how names of groups begin that mode Auto makes

GroupName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?$", max_length=20)]
ServiceName = Annotated[str, StringConstraints(min_length=1, max_length=50)]
_Percent = Annotated[int, Field(ge=0, le=100)]


class PlannedGPUs(Block):
    """The GPUs that a plan may use, all of one kind."""

    type: Word = live("Their kind, as the cost models call it: A100, H100, H200 and others.")
    per_node: Annotated[Integer, Field(ge=1, le=16)] = live(
        "GPUs of a node, over which an engine can be split.", 8
    )
    count: Annotated[Integer, Field(ge=1, le=512)] | None = live(
        "GPUs in all. Unset: as many as the services have today.", None
    )


class PlannedService(Block):
    """A service that a plan is made for."""

    name: ServiceName = live("Name of an LLMService of the pool's namespace.")
    cost_model: Word | None = live(
        "Cost model whose step times and sizes stand for those of the service's model. Unset: the one that "
        "model.source names.",
        None,
    )


class Placement(Block):
    """Which services should share GPUs, found from what they are asked."""

    mode: Literal["Recommend", "Auto"] = live(
        "Recommend: the plan is in status.plan, and nothing is done about it. Auto: services are moved as it "
        "says, one after another, where that pays.",
        "Recommend",
    )
    gpus: PlannedGPUs = live("The GPUs that a plan may use.")
    services: tuple[PlannedService, ...] = live(
        "The services that a plan is made for.",
        min_length=1,
        max_length=MOST_PLANNED,
        json_schema_extra=list_map("name"),
    )

    @property
    def is_auto(self) -> bool:
        """Whether the plan is carried out."""
        return self.mode == "Auto"


class PlannedMember(Block):
    """A service's engine in a group of a plan."""

    service: ServiceName = seen("Its LLMService.", ...)
    gpu_memory_utilization_percent: _Percent = seen(
        "Part of each GPU's memory that it takes: what its spec.engine should say.", ...
    )
    kv_cache_memory_bytes: int = seen(
        "Bytes of each GPU for its KV cache: the value of --kv-cache-memory-bytes in its spec.engine.args.",
        ...,
        ge=0,
    )


class PlannedGroup(Block):
    """Engines that would share GPUs by turns; one alone has them to itself."""

    gpus: int = seen("GPUs over which each of its engines is split: tensorParallelSize.", ..., ge=1)
    members: tuple[PlannedMember, ...] = seen("Its engines.", (), max_length=16, json_schema_extra=ATOMIC)
    message: Long = seen("The group in words.", "")


class PlannedServiceStatus(Block):
    """What a service was asked, and how it fares."""

    name: ServiceName = seen("Its LLMService.", ...)
    requests: int = seen("Requests that the plan was made with.", 0, ge=0)
    prompt_tokens: int = seen("Their mean prompt, in tokens.", 0, ge=0)
    output_tokens: int = seen("Their mean output, in tokens.", 0, ge=0)
    measured_percent: _Percent | None = seen(
        "Of the requests, those that met all targets of spec.slo, as its engines measured them."
    )
    today_percent: _Percent | None = seen("The same, estimated for the engines of today.")
    planned_percent: _Percent | None = seen("The same, estimated for the plan.")


class PlacedService(Block):
    """Where mode Auto puts a service, in place of what its own spec says."""

    name: ServiceName = seen("Its LLMService.", ...)
    group: GroupName | None = seen("Group whose GPUs its engine shares. Absent: each has GPUs of its own.")
    replicas: int = seen("Number of its engines.", ..., ge=1)
    tensor_parallel_size: int = seen("GPUs of each.", ..., ge=1)
    gpu_memory_utilization_percent: _Percent | None = seen(
        "Part of each GPU's memory that it takes. Absent, as of GPUs of its own: as its spec says."
    )
    kv_cache_memory_bytes: int | None = seen(
        "Bytes of each GPU for its KV cache. Absent, as of GPUs of its own: as its spec says.", ge=0
    )


class PlacementStatus(Block):
    """The plan that mode Auto carries out."""

    time: Annotated[str, Field(json_schema_extra={"format": "date-time", "maxLength": 32})] = seen(
        "Since when.", ...
    )
    services: tuple[PlacedService, ...] = seen(
        "Where its services are put.", (), max_length=MOST_PLANNED, json_schema_extra=list_map("name")
    )


class PlanStatus(Block):
    """The last plan."""

    time: Annotated[str, Field(json_schema_extra={"format": "date-time", "maxLength": 32})] = seen(
        "When it was made.", ...
    )
    message: Long = seen("The plan in words.", "")
    gpus: int = seen("GPUs that it uses.", 0, ge=0)
    gpus_today: int = seen("GPUs that the services use today.", 0, ge=0)
    groups: tuple[PlannedGroup, ...] = seen(
        "Its groups, the largest first. A service in several has an engine in each.",
        (),
        max_length=512,
        json_schema_extra=ATOMIC,
    )
    services: tuple[PlannedServiceStatus, ...] = seen(
        "Its services.", (), max_length=MOST_PLANNED, json_schema_extra=list_map("name")
    )
