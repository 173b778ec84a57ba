"""What a simulation of a plan is asked: handed to other processes, so without vLLM."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_engine.contracts import PolicyDocument, Slo
from headrace_engine.contracts.turn_group import TurnOrder
from headrace_engine.cost.model import CostModel
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_operator.placement.problem import Seat


@dataclass(frozen=True, slots=True)
class Asked:
    """A service and what it is asked. `alone`: what steps of its smallest engine take, for targets that are
    relative.
    """

    arrivals: tuple[Arrival, ...]
    policy: PolicyDocument
    slo: Slo
    alone: CostModel
    step_tokens: int  # that a step may process


@dataclass(frozen=True, slots=True)
class Seated:
    """One engine of a group, and the requests that it is sent."""

    seat: Seat
    settings: EngineSettings
    cost: CostModel


@dataclass(frozen=True, slots=True)
class TakingTurns:
    """Engines that take turns in an order; one alone computes whenever it wants."""

    engines: tuple[Seated, ...]
    order: TurnOrder


@dataclass(frozen=True, slots=True)
class PlanJob:
    """One plan."""

    services: tuple[Asked, ...]
    groups: tuple[TakingTurns, ...]
