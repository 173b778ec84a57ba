"""What became of a simulated request."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from headrace_engine.sim.workloads.arrival import Arrival


@dataclass(slots=True)
class Outcome:
    """One request; times are seconds on the simulation's clock, None if it has not come to that.

    The figures count from `arrival.at`, when the client sent it. They are of one attempt: a request that was
    sent again after its engine failed has an outcome for each.
    """

    arrival: Arrival
    engine: int = 0  # number of the engine that serves it, the last one if it moved
    started_at: float | None = None  # first scheduled
    first_token_at: float | None = None
    last_token_at: float | None = None  # so far
    finished_at: float | None = None
    longest_gap: float = 0.0  # seconds between two of its tokens
    allowed_gap: float = field(
        init=False
    )  # seconds between two of its tokens, by its client's target for TPOT
    late_tokens: int = 0  # that came longer than that after the one before
    preemptions: int = 0
    cached_tokens: int = 0  # of the prompt, found in the prefix cache when it first started

    def __post_init__(self) -> None:
        """Look up the allowed gap, which the simulator asks for with every token."""
        target = self.arrival.targets.tpot
        self.allowed_gap = inf if target is None else target

    @property
    def lost(self) -> bool:
        """Whether the request never finished."""
        return self.finished_at is None

    @property
    def wait(self) -> float | None:
        """Seconds until it was first scheduled."""
        return None if self.started_at is None else self.started_at - self.arrival.at

    @property
    def ttft(self) -> float | None:
        """Seconds from arrival to the first token."""
        return None if self.first_token_at is None else self.first_token_at - self.arrival.at

    @property
    def e2e(self) -> float | None:
        """Seconds from arrival to the last token."""
        return None if self.finished_at is None else self.finished_at - self.arrival.at

    @property
    def tpot(self) -> float | None:
        """Mean seconds between its tokens; 0 with one token only."""
        if self.finished_at is None or self.first_token_at is None:
            return None
        return (self.finished_at - self.first_token_at) / max(self.arrival.output_tokens - 1, 1)

    @property
    def normalized_latency(self) -> float | None:
        """Seconds to the last token, per output token."""
        return (
            None
            if self.finished_at is None
            else (self.finished_at - self.arrival.at) / self.arrival.output_tokens
        )
