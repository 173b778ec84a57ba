"""Kubernetes Events for transitions: `kubectl describe` shows how the service came to be as it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace_operator.api import Condition, PodReason, PoolStatus, Reason, ServiceStatus, Severity
from headrace_operator.api.bodies import Body

# Reconciling, Stalled and RoutingReady follow from what these already tell.
_TOLD = (
    Condition.ACCEPTED,
    Condition.READY,
    Condition.PLANNED,
    Condition.AS_PLANNED,
    Condition.POLICY_APPLIED,
    Condition.DEGRADED,
)
# Steps on the way to something that will be told when it is there.
_SILENT = {Reason.PENDING, Reason.PLANNING, Reason.NO_READY_REPLICAS, Reason.AS_EXPECTED, Reason.NOT_ACCEPTED}
_EXPECTED = {
    Reason.SCALED_TO_ZERO,
    Reason.NO_TRAFFIC,
    Reason.MOVING,
    *(reason for reason in PodReason if reason.severity is Severity.EXPECTED),
}
_LONGEST_NOTE = 1024  # bytes; the API server refuses an Event whose note has more


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    """One event about a service."""

    warning: bool
    reason: str
    note: str  # at most 1,024 bytes of UTF-8
    action: str


def service_events(previous: Body, current: ServiceStatus | PoolStatus) -> Iterator[ServiceEvent]:
    """Make an event of each condition whose status or reason changed."""
    before = {c["type"]: (c["status"], c["reason"]) for c in previous.get("conditions") or []}
    for condition in current.conditions:
        changed = before.get(condition.type) != (condition.status, condition.reason)
        if not changed or condition.type not in _TOLD or condition.reason in _SILENT:
            continue
        good = condition.status == ("False" if condition.type == Condition.DEGRADED else "True")
        yield ServiceEvent(
            warning=not good and condition.reason not in _EXPECTED,
            reason=condition.reason,
            note=_note(f"{condition.type}={condition.status}: {condition.message}"),
            action="Reconcile",
        )


def _note(text: str) -> str:
    """Cut a text to what an Event takes, in whole characters."""
    if len(text.encode()) <= _LONGEST_NOTE:
        return text
    end = "…"
    return text.encode()[: _LONGEST_NOTE - len(end.encode())].decode(errors="ignore") + end
