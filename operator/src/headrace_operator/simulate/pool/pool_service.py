"""A service of the pool's file: the engines that it has today, and what its placement needs to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil

from headrace_engine.contracts import Slo
from headrace_engine.cost import catalog
from headrace_engine.cost.model import CostModel
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_operator.api import LLMService
from headrace_operator.placement.problem import Request, Service
from headrace_operator.simulate import models, targets
from headrace_operator.simulate.simulated_engine import RESERVED, Engine, make_engine
from headrace_operator.simulate.usage_error import UsageError


@dataclass(frozen=True, slots=True)
class PoolService:
    """One service. `costs`: how long its steps take, by the number of GPUs that an engine is split over."""

    service: LLMService
    model: str  # the catalogue's name
    costs: Mapping[int, CostModel]
    engine: Engine  # each of today's
    slo: Slo
    slo_assumed: bool

    @property
    def name(self) -> str:
        """Its name; all services of a file are told apart by it."""
        return self.service.key.name

    @property
    def gpus(self) -> int:
        """GPUs of each engine today."""
        return self.service.spec.engine.tensor_parallel_size

    @property
    def replicas(self) -> int:
        """Engines today; one if it is scaled to none, since it was asked something."""
        return max(self.service.replicas, 1)

    @property
    def longest(self) -> int:
        """Tokens of KV that an engine needs: its longest request, in whole blocks, and a block for vLLM."""
        settings = self.engine.settings
        return (-(-settings.max_model_len // settings.block_size) + 1) * settings.block_size

    def kv_bytes(self, tokens: int, gpus: int) -> int:
        """Count the bytes on each of an engine's GPUs of so many tokens of KV."""
        return tokens * catalog.find_shape(self.model).kv_bytes_per_token // gpus

    def memory_percent(self, tokens: int, gpus: int) -> int:
        """Return the part of each GPU's memory that an engine with so much KV takes, rounded up."""
        weights = catalog.find_shape(self.model).weight_bytes // gpus
        gpu = self.costs[gpus].profile.gpu
        return ceil(100 * (weights + self.kv_bytes(tokens, gpus) + RESERVED) / catalog.gpu_bytes(gpu))

    def settings_with(self, kv_tokens: int) -> EngineSettings:
        """Return the settings of an engine that has so many tokens of KV."""
        settings = self.engine.settings
        return replace(settings, num_blocks=kv_tokens // settings.block_size)

    def as_placed(self, requests: Iterable[Arrival | Request]) -> Service:
        """Return what the search for a plan needs to know, asked `requests`."""
        settings = self.engine.settings
        return Service(
            name=self.name,
            requests=tuple(Request(each.at, each.prompt_tokens, each.output_tokens) for each in requests),
            costs=self.costs,
            weight_bytes=catalog.find_shape(self.model).weight_bytes,
            kv_bytes_per_token=catalog.find_shape(self.model).kv_bytes_per_token,
            longest=self.longest,
            slo=self.slo,
            step_tokens=settings.max_num_batched_tokens,
            most_running=settings.max_num_seqs,
        )


def read_service(service: LLMService, told: str | None, gpu: str) -> PoolService:
    """Find out how `service` is simulated on such GPUs; `told`: its cost model, None if its source says it.

    Raises UsageError that names the service.
    """
    try:
        served = models.find_served_model(service, told)
        today = models.find_cost_model(served.name, gpu, service.spec.engine.tensor_parallel_size)
        slo, assumed = targets.choose_targets(service)
        return PoolService(
            service=service,
            model=today.profile.model,
            costs={
                size: models.find_cost_model(served.name, gpu, size)
                for size in models.list_sizes(served.name, gpu)
            },
            engine=make_engine(service, served, today.profile),
            slo=slo,
            slo_assumed=assumed,
        )
    except UsageError as error:
        raise UsageError(f"{service.key.name}: {error}") from error
