"""Predicted lengths of a stated accuracy, for benchmarks: nothing outside a simulation can know them.

They travel as the hints of clients do, so a policy meets them where it would in production, and a request
that outgrows its hint is predicted anew by what the policy document asks for.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass

from headrace_engine.sim.workloads.arrival import Arrival


@dataclass(frozen=True, slots=True)
class Oracle:
    """Tells each request's output: the truth with probability `accuracy`, else the output of any request.

    EconoServe calls its predictions 70 to 78 % accurate and does not say how far off the others are; that
    they know nothing but the workload's lengths is our reading. What a request is told hangs on `seed` and
    its place in the workload alone, so all policies are told the same.
    """

    accuracy: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.accuracy <= 1:
            raise ValueError(f"an accuracy of {self.accuracy} is not a share")

    def __call__(self, arrivals: Sequence[Arrival]) -> list[Arrival]:
        """The same requests with hints."""
        return [
            dataclasses.replace(arrival, hint=self._told(place, arrival, arrivals))
            for place, arrival in enumerate(arrivals)
        ]

    def _told(self, place: int, arrival: Arrival, arrivals: Sequence[Arrival]) -> int:
        chance = random.Random(f"{self.seed} {place}")  # noqa: S311
        if chance.random() < self.accuracy:
            return arrival.output_tokens
        return chance.choice(arrivals).output_tokens
