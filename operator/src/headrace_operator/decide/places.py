"""What of a service its pool decides: how many engines, on which devices, and how much of each. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from headrace_operator.api import LLMService
from headrace_operator.api.bodies import Body
from headrace_operator.api.engine_arguments import parse_arguments, with_option
from headrace_operator.api.placement import PlacedService
from headrace_operator.decide.rollout import service_as_running

KV_BYTES = "kv-cache-memory-bytes"
WHOLE = 100  # percent of a GPU's memory


class Place(NamedTuple):
    """Where the engines of a service are. `claim`: whose devices they share; None: each has its own."""

    claim: str | None
    gpus: int  # of each engine
    memory_percent: int | None  # of each of those; None: vLLM's default
    kv_bytes: str | None  # of each of those; None: what vLLM finds free
    replicas: int


def place_of(service: LLMService) -> Place:
    """Return where a service's engines are if it is carried out as it is."""
    engine = service.spec.engine
    return Place(
        service.group_claim,
        engine.tensor_parallel_size,
        engine.gpu_memory_utilization_percent,
        parse_arguments(engine.args).get(KV_BYTES),
        service.replicas,
    )


def memory_taken(places: Iterable[Place]) -> int:
    """Return the percent of each GPU's memory that engines on the same GPUs take; who says none takes all."""
    return sum((place.memory_percent or WHOLE) * place.replicas for place in places)


def running_place(service: LLMService, live: Body | None) -> Place | None:
    """Return where the engines are that a live Deployment runs; None if it is not known."""
    running = service_as_running(service, live)
    if running is None or live is None:
        return None
    return place_of(running)._replace(replicas=int(live["spec"]["replicas"]))


def put(service: LLMService, place: Place) -> LLMService:
    """Return the service with its engines in a place, whatever its own spec says of that."""
    engine = service.spec.engine
    changed = engine.model_copy(
        update={
            "tensor_parallel_size": place.gpus,
            "gpu_memory_utilization_percent": place.memory_percent,
            "args": with_option(engine.args, KV_BYTES, place.kv_bytes),
        }
    )
    return replace(
        service,
        spec=service.spec.model_copy(update={"engine": changed}),
        group_claim=place.claim,
        placed_replicas=place.replicas,
    )


def put_as_planned(service: LLMService, placed: PlacedService | None) -> LLMService:
    """Return the service as its pool places it, on no devices yet; as it is if its pool does not."""
    if placed is None:
        return service
    place = place_of(service)._replace(claim=None, gpus=placed.tensor_parallel_size, replicas=placed.replicas)
    if placed.kv_cache_memory_bytes is not None:
        place = place._replace(
            memory_percent=placed.gpu_memory_utilization_percent, kv_bytes=str(placed.kv_cache_memory_bytes)
        )
    return put(service, place)
