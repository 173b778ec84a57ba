"""What the operator measures of itself, for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from headrace_operator.api import Condition, Key, ServiceStatus

RECONCILE_SECONDS = Histogram(
    "headrace_operator_reconcile_seconds",
    "Duration of one reconcile.",
    ["result"],  # ok, conflict, api_error, timeout, error
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
QUEUE_DEPTH = Gauge("headrace_operator_queue_depth", "Services and pools that wait for a worker.")
QUEUE_AGE = Gauge("headrace_operator_queue_age_seconds", "How long the one due longest has waited.")
API_REQUESTS = Counter(
    "headrace_operator_api_requests", "Requests to the API server; code 0: no answer.", ["verb", "code"]
)
LAST_EVENT = Gauge(
    "headrace_operator_last_event_timestamp_seconds",
    "When the watch of a kind brought something last.",
    ["kind"],
)
ACTIONS = Counter("headrace_operator_actions", "Changes made to owned objects and pods.", ["action", "kind"])
LEADER = Gauge("headrace_operator_leader", "Whether this replica holds the Lease and writes: 1 or 0.")
CONDITION = Gauge(
    "headrace_service_condition",
    "Condition of an LLMService: 1 true, 0 false, -1 unknown.",
    ["namespace", "service", "condition", "reason"],
)

_VALUES = {"True": 1, "False": 0, "Unknown": -1}
_reasons: dict[tuple[Key, str], str] = {}  # shown now, by service and condition


def set_condition_gauges(key: Key, status: ServiceStatus) -> None:
    """Set the condition gauges of a service, each under its reason of now only."""
    for condition in status.conditions:
        labels = (key.namespace, key.name, condition.type)
        before = _reasons.get((key, condition.type))
        if before not in (None, condition.reason):
            CONDITION.remove(*labels, before)
        _reasons[key, condition.type] = condition.reason
        CONDITION.labels(*labels, condition.reason).set(_VALUES[condition.status])


def drop_all_condition_gauges() -> None:
    """Drop the gauges of all services: another replica tells of them."""
    CONDITION.clear()
    _reasons.clear()


def drop_condition_gauges(key: Key) -> None:
    """Drop the gauges of a service that is gone."""
    for condition in Condition:
        reason = _reasons.pop((key, condition), None)
        if reason is not None:
            CONDITION.remove(key.namespace, key.name, condition, reason)
