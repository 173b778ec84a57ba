"""The outcome of one reconcile, from its steps to the status."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_operator.decide.service_status import Executed
from headrace_operator.errors import RefusedError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one reconcile did, what stood against the rest, and when the next is due."""

    executed: Executed = Executed.NOTHING
    requeue_after: float | None = None  # seconds
    refused: RefusedError | None = None
    failure: Exception | None = None
    acceptance_known: bool = True  # whether it is known if the spec is accepted


def soonest(*waits: float | None) -> float | None:
    """Return the shortest of the waits, leaving out None; None if there is none."""
    return min((wait for wait in waits if wait is not None), default=None)
