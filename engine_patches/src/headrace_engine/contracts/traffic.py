"""What an engine was asked over the last hour: what placement needs to know of a service."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite

WINDOW_SECONDS = 20
MOST_WINDOWS = 180  # an hour; in JSON less than half of what a reader takes


@dataclass(frozen=True, slots=True)
class TrafficWindow:
    """Sums over the requests that arrived within one window, as far as they have run to their end.

    Raises ValueError for a sum that none can have.
    """

    start: int  # unix seconds, a multiple of the window's length
    requests: int
    prompt_tokens: int
    output_tokens: int
    prompt_squares: float  # of each request's prompt tokens
    output_squares: float
    met: int  # requests that met all of their targets
    e2e_seconds: float

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for each in fields(self):
            value = getattr(self, each.name)
            if not isfinite(value) or value < 0:
                raise ValueError(f"{each.name}: {value} is no sum")
        if not self.met <= self.requests:
            raise ValueError(f"met: {self.met} of {self.requests} requests")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Sidecar → operator, `GET /traffic`: the windows of the last hour that had requests, by time."""

    windows: tuple[TrafficWindow, ...]
    window_seconds: int = WINDOW_SECONDS
    schema: int = 1
