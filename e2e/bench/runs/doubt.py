"""What is uncertain of how long a step takes, and the points at which findings are tried again.

Attention in mixed steps may take longer than its parts, each step may take more, and the host may be faster
or slower than the one that host time was calibrated on: its own time counts as often as `host` says, with 0
not at all.
"""

from dataclasses import asdict, dataclass, replace
from typing import TypeVar

from e2e.bench.runs.engine import Case
from e2e.bench.runs.fleet import FleetCase

AnyCase = TypeVar("AnyCase", Case, FleetCase)


@dataclass(frozen=True, slots=True)
class Doubt:
    """One point; the first of a grid is the cost model as it is fitted."""

    mixed: float = 1.0  # mixed_attention_factor
    overhead_ms: float = 0.0
    host: float = 1.0

    def __call__(self, case: AnyCase) -> AnyCase:
        """Return the run at this point."""
        return replace(case, **asdict(self))

    def __str__(self) -> str:
        """`x1.4, +1 ms`, with the host's factor where that is not 1."""
        host = f", host x{self.host:g}" if self.host != 1 else ""
        return f"x{self.mixed:g}, +{self.overhead_ms:g} ms{host}"


HOSTS = tuple(Doubt(mixed, host=host) for mixed in (1.0, 1.8) for host in (0.0, 2.0))
GRID = (*(Doubt(mixed, overhead) for mixed in (1.0, 1.4, 1.8) for overhead in (0.0, 1.0, 3.0)), *HOSTS)
CORNERS = (*(Doubt(mixed, overhead) for mixed in (1.0, 1.8) for overhead in (0.0, 3.0)), *HOSTS)
TOLD = "mixed attention, time added to a step, and where it is not 1 how often the host's own time counts"
