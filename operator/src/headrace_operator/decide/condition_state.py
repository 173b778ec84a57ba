"""What a condition says, and how it is written. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_operator.api import Condition, StatusCondition
from headrace_operator.api.bodies import Body

STATUSES = {True: "True", False: "False", None: "Unknown"}


@dataclass(frozen=True, slots=True)
class ConditionState:
    """One condition without its bookkeeping."""

    holds: bool | None  # None: unknown
    reason: str
    message: str = ""


def told_before(kind: Condition, previous: Body) -> Body:
    """Return the condition of a kind in the status that was written last; empty if it had none."""
    return next((each for each in previous.get("conditions") or () if each["type"] == kind), {})


def make_condition(
    kind: Condition, state: ConditionState, previous: Body, generation: int | None, now: str
) -> StatusCondition:
    """Make the condition as it is written; its transition time moves only with its status.

    `previous`: the status that was written last. `generation`: that this tells of; None: as before.
    """
    status, before = STATUSES[state.holds], told_before(kind, previous)
    return StatusCondition(
        type=kind,
        status=status,  # type: ignore[arg-type]  # one of the three
        reason=state.reason,
        message=state.message[:4096],
        observed_generation=before.get("observedGeneration", 0) if generation is None else generation,
        last_transition_time=before["lastTransitionTime"] if before.get("status") == status else now,
    )
