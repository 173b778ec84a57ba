"""One engine serves one workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import merge
from math import inf
from typing import Protocol

from headrace_engine.contracts import PolicyDocument
from headrace_engine.cost.host import NO_HOST_TIME, HostTime
from headrace_engine.cost.model import CostModel
from headrace_engine.sim.clock import Compose
from headrace_engine.sim.engine import NO_FORESIGHT, Foresight, SimulatedEngine
from headrace_engine.sim.form import Form
from headrace_engine.sim.garbage_collector import no_collector
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival


@dataclass(frozen=True, slots=True)
class Run:
    """What one engine did with a workload; everything in it is simulated."""

    outcomes: list[Outcome]  # in the order of the arrivals
    steps: int
    preemptions: int
    busy_seconds: float  # in which a step ran
    duration: float  # seconds from 0 to the last token
    kv_use: float  # mean share of KV blocks in use while a step ran
    decisions: str  # sha256 over every step's decisions


class Served(Protocol):
    """What takes requests and has a next event; times are seconds from 0."""

    @property
    def next_event_at(self) -> float:
        """When something is due; infinity while idle."""

    def add(self, arrival: Arrival, now: float, /) -> object:
        """Take a request that arrives at `now`."""

    def advance(self) -> object:
        """Carry out what is due at `next_event_at`."""


def serve(engine: Served, arrivals: Iterable[Arrival]) -> None:
    """Add `arrivals`, sorted by time, each at its time, and go on until nothing is left to do."""
    serve_together([engine], [arrivals])


def serve_together(engines: Sequence[Served], services: Sequence[Iterable[Arrival]]) -> None:
    """Serve several, each its own arrivals, on one clock; what is due at one time, in their order."""
    tagged = ([(arrival.at, place, arrival) for arrival in each] for place, each in enumerate(services))
    for at, place, arrival in merge(*tagged, key=lambda entry: entry[:2]):
        _advance_until(engines, at)
        engines[place].add(arrival, at)
    _advance_until(engines, inf)


def _advance_until(engines: Sequence[Served], until: float) -> None:
    """Carry out what is due before `until`."""
    while True:
        soonest = min(engines, key=lambda engine: engine.next_event_at)
        if soonest.next_event_at >= until:
            return
        soonest.advance()


def simulate(
    arrivals: Iterable[Arrival],
    settings: EngineSettings,
    cost: CostModel,
    policy: PolicyDocument | Form | Compose | None = None,
    *,
    foresight: Foresight = NO_FORESIGHT,
    host: HostTime = NO_HOST_TIME,
) -> Run:
    """Serve `arrivals`, sorted by time, to the end; `policy` None is vLLM without our adapter,
    `foresight` what the policy knows of the future, `host` the seconds that the CPU takes.

    Raises ValueError for a request that the engine could never serve, ContractError for a bad document.
    """
    engine = SimulatedEngine(settings, cost, policy, foresight=foresight, host=host)
    with no_collector():
        serve(engine, arrivals)
    return Run(
        engine.outcomes,
        engine.steps,
        engine.preemptions,
        engine.busy_seconds,
        max((outcome.finished_at or 0.0 for outcome in engine.outcomes), default=0.0),
        engine.kv_seconds / engine.busy_seconds if engine.busy_seconds else 0.0,
        engine.decisions.hexdigest(),
    )
