"""GPUs in time slices, as NVIDIA's device plugin shares them: to compare turns with.

Nobody coordinates the engines. While several compute, each has an equal part of the time; a switch between
them costs nothing, and slices are as short as can be, so they do better here than they would.
"""

from __future__ import annotations

from math import inf

from headrace_engine.sim.engine import MOMENT, SimulatedEngine
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.workloads.arrival import Arrival


class TimeSlices:
    """The GPUs, with the engines that share them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.engines: list[SimulatedEngine] = []

    def computing(self) -> list[SimulatedEngine]:
        """List the engines that compute now."""
        return [engine for engine in self.engines if engine.computing(self.now)[0] <= self.now]

    def move_to(self, now: float) -> None:
        """Let time pass in which no engine begins or ends to compute."""
        computing = self.computing()
        for engine in computing:
            engine.put_off((now - self.now) * (1 - 1 / len(computing)), self.now)
        self.now = now


class TimeSlicedEngine:
    """An engine that shares GPUs with others."""

    def __init__(self, engine: SimulatedEngine, slices: TimeSlices) -> None:
        self.engine = engine
        self._slices = slices
        slices.engines.append(engine)

    @property
    def next_event_at(self) -> float:
        """When something is due, or it begins or ends to compute; infinity while idle."""
        now = self._slices.now
        due = inf if self.engine.awaits_gpu(now) else self.engine.next_event_at
        starts_at, ends_at = self.engine.computing(now)
        if starts_at > now:
            return min(starts_at, due)
        return min(now + (ends_at - now) * len(self._slices.computing()), due)

    @property
    def outcomes(self) -> list[Outcome]:
        """What became of its requests, in the order in which it got them."""
        return self.engine.outcomes

    def add(self, arrival: Arrival, now: float) -> None:
        """Take a request that arrives at `now`."""
        self._slices.move_to(now)
        self.engine.add(arrival, now)

    def advance(self) -> list[Outcome]:
        """Carry out what is due; gives the outcomes that are complete now."""
        now = self.next_event_at
        self._slices.move_to(now)
        return self.engine.advance() if self.engine.next_event_at <= now + MOMENT else []
