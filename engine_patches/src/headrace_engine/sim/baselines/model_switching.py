"""Whole models that are switched on a GPU, as llama-swap does it: to compare turns with.

One engine is loaded at a time. Requests for it start at once as long as nobody asks for another; from then on
all wait, and once the loaded engine has finished what it has begun, that of the oldest request is loaded.
"""

from __future__ import annotations

from math import inf

from headrace_engine.sim.engine import SimulatedEngine
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.workloads.arrival import Arrival

SWITCH_SECONDS = 4.0  # to put one model to sleep and wake another [SeaLLM, section 2; vLLM's sleep mode]


class Switch:
    """Who is loaded among the engines of one GPU, and who waits for it. The first is loaded at the start."""

    def __init__(self, seconds: float = SWITCH_SECONDS) -> None:
        self.seconds = seconds
        self.loaded: SwitchedEngine | None = None
        self.waiting: list[tuple[SwitchedEngine, Arrival]] = []  # in order of arrival
        self.switches = 0

    def load_next(self, now: float) -> None:
        """Begin to load the engine of the oldest request that waits, if the loaded one has nothing to do."""
        if self.waiting and (self.loaded is None or self.loaded.is_idle):
            engine = self.waiting[0][0]
            self.switches += engine is not self.loaded
            engine.loads_at = now + self.seconds * (engine is not self.loaded)
            self.loaded = engine


class SwitchedEngine:
    """An engine that computes only while it is loaded."""

    def __init__(self, engine: SimulatedEngine, switch: Switch) -> None:
        self.engine = engine
        self.loads_at = inf  # when it will be, if it is being loaded
        self._switch = switch
        if switch.loaded is None:
            switch.loaded = self

    @property
    def is_idle(self) -> bool:
        """Tell whether it has nothing to do, and is not being loaded."""
        return self.engine.next_event_at == inf and self.loads_at == inf

    @property
    def next_event_at(self) -> float:
        """When something is due; infinity while idle."""
        return min(self.loads_at, self.engine.next_event_at)

    @property
    def outcomes(self) -> list[Outcome]:
        """What became of its requests, in the order in which it got them."""
        return self.engine.outcomes

    def add(self, arrival: Arrival, now: float) -> None:
        """Take a request that arrives at `now`."""
        switch = self._switch
        if switch.loaded is self and self.loads_at == inf and not switch.waiting:
            self.engine.add(arrival, now)
        else:
            switch.waiting.append((self, arrival))
            switch.load_next(now)

    def advance(self) -> None:
        """Carry out what is due: it is loaded, and takes what waits for it; or a step of the engine."""
        now = self.next_event_at
        if now == self.loads_at:
            self.loads_at = inf
            mine = [arrival for engine, arrival in self._switch.waiting if engine is self]
            self._switch.waiting = [entry for entry in self._switch.waiting if entry[0] is not self]
            for arrival in mine:
                self.engine.add(arrival, now)
        else:
            self.engine.advance()
        self._switch.load_next(now)
