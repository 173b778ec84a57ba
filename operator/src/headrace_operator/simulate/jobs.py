"""What a simulation is asked: handed to other processes, so without vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace_engine.contracts import GatewayConfig, PolicyDocument, Slo
from headrace_engine.cost.model import CostModel
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_operator.simulate.figures import Figures
from headrace_operator.simulate.intervals import Draw


@dataclass(frozen=True, slots=True)
class World:
    """What all simulations of one command have in common."""

    arrivals: tuple[Arrival, ...]
    seconds: float  # of the stretch that they arrive in
    settings: EngineSettings  # of each replica
    cost: CostModel  # of a replica
    gateway: GatewayConfig
    slo: Slo  # what each request shall meet
    seed: int


@dataclass(frozen=True, slots=True)
class Job:
    """One simulation; two doubts about the cost model are those of `cost.model.vary_cost`."""

    policy: PolicyDocument
    replicas: int
    mixed_attention_factor: float = 1.0
    overhead_seconds: float = 0.0
    draw: Draw | None = None  # other traffic and step times than the trace's and the cost model's own


class Simulate(Protocol):
    """Simulates jobs, several at a time."""

    @property
    def at_once(self) -> int:
        """How many run side by side."""

    def __call__(self, jobs: Sequence[Job], what: str) -> list[Figures]:
        """Figures of each job, in order; `what` they are for is told to the user."""
