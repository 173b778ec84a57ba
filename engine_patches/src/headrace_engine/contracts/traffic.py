"""What an engine was asked over the last hour: what placement needs to know of a service."""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_SECONDS = 20
SLOTS = 40  # of half a second, of a window: who should share GPUs depends on how requests come in bursts
MOST_WINDOWS = 180  # an hour
_BEYOND = 1e30  # more than any sum


@dataclass(frozen=True, slots=True)
class TrafficWindow:
    """Sums over the requests that arrived within one window, as far as they have run to their end.

    Raises ValueError for what cannot be.
    """

    start: int  # unix seconds, a multiple of the window's length
    arrivals: tuple[int, ...]  # requests of each of its slots
    prompt_tokens: int
    output_tokens: int
    prompt_squares: float  # of each request's prompt tokens
    output_squares: float
    met: int  # requests that met all of their targets
    e2e_seconds: float

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if len(self.arrivals) != SLOTS:
            raise ValueError(f"arrivals: has {len(self.arrivals)} numbers and not {SLOTS}")
        for name, value in (
            ("start", self.start),
            ("arrivals", min(self.arrivals)),
            ("arrivals", max(self.arrivals)),
            ("prompt_tokens", self.prompt_tokens),
            ("output_tokens", self.output_tokens),
            ("prompt_squares", self.prompt_squares),
            ("output_squares", self.output_squares),
            ("met", self.met),
            ("e2e_seconds", self.e2e_seconds),
        ):
            if not 0 <= value < _BEYOND:
                raise ValueError(f"{name}: {value} is no sum")
        if self.met > self.requests:
            raise ValueError(f"met: {self.met} of {self.requests} requests")

    @property
    def requests(self) -> int:
        """Requests of the window."""
        return sum(self.arrivals)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Sidecar → operator, `GET /traffic`: the windows of the last hour that had requests, by time."""

    windows: tuple[TrafficWindow, ...]
    schema: int = 1
