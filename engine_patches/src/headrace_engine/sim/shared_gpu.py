"""Engines that share a GPU, or the GPUs of a tensor parallel group, on one virtual clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import merge
from math import inf

from headrace_engine.sim.engine import SimulatedEngine
from headrace_engine.sim.garbage_collector import no_collector
from headrace_engine.sim.workloads.arrival import Arrival


def serve_together(engines: Sequence[SimulatedEngine], services: Sequence[Iterable[Arrival]]) -> None:
    """Serve the arrivals of each service, sorted by time, at the engine of the same place, to the end.

    What happens at one time happens to the engines in their order.
    """
    tagged = ([(arrival.at, place, arrival) for arrival in each] for place, each in enumerate(services))
    with no_collector():
        for at, place, arrival in merge(*tagged, key=lambda entry: entry[:2]):
            _advance_until(engines, at)
            engines[place].add(arrival, at)
        _advance_until(engines, inf)


def _advance_until(engines: Sequence[SimulatedEngine], until: float) -> None:
    """Carry out what is due before `until`."""
    while True:
        nxt = min(engines, key=lambda engine: engine.next_event_at)
        if nxt.next_event_at >= until:
            return
        nxt.advance()
