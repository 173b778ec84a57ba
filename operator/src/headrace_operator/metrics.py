"""What the operator measures of itself, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram

from headrace_operator.api import Key, PoolStatus, ServiceStatus, StatusCondition

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
SERVICE_CONDITION = Gauge(
    "headrace_service_condition",
    "Condition of an LLMService: 1 true, 0 false, -1 unknown.",
    ["namespace", "service", "condition", "reason"],
)
POOL_CONDITION = Gauge(
    "headrace_pool_condition",
    "Condition of a GPUPool: 1 true, 0 false, -1 unknown.",
    ["namespace", "pool", "condition", "reason"],
)
POOL_IN_TIME = Gauge(
    "headrace_pool_in_time_ratio",
    "Share of a service's requests that met all targets, or should with a pool's last plan and without it.",
    ["namespace", "pool", "service", "when"],  # Measured, Today, Planned
)
POOL_GPUS = Gauge(
    "headrace_pool_gpus",
    "GPUs that a pool's services have, and those of its last plan.",
    ["namespace", "pool", "when"],  # Today, Planned
)

_VALUES = {"True": 1, "False": 0, "Unknown": -1}


class ConditionGauges:
    """The conditions of all objects of one kind, each under its reason of now only.

    `gauge` has the labels namespace, name, condition and reason.
    """

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._shown: dict[Key, dict[str, str]] = {}  # reasons by type

    def show(self, key: Key, conditions: Iterable[StatusCondition]) -> None:
        """Show the conditions of an object, and no others of it."""
        now = {condition.type: condition for condition in conditions}
        for kind, reason in self._shown.pop(key, {}).items():
            if kind not in now or now[kind].reason != reason:
                self._gauge.remove(key.namespace, key.name, kind, reason)
        for kind, condition in now.items():
            self._gauge.labels(key.namespace, key.name, kind, condition.reason).set(_VALUES[condition.status])
        self._shown[key] = {kind: condition.reason for kind, condition in now.items()}

    def drop(self, key: Key) -> None:
        """Drop what is shown of an object that is gone."""
        self.show(key, ())
        del self._shown[key]

    def drop_all(self) -> None:
        """Drop everything: another replica tells of it."""
        self._gauge.clear()
        self._shown.clear()


_SERVICES, _POOLS = ConditionGauges(SERVICE_CONDITION), ConditionGauges(POOL_CONDITION)


def show_service(key: Key, status: ServiceStatus) -> None:
    """Show the conditions of an LLMService."""
    _SERVICES.show(key, status.conditions)


def show_pool(key: Key, status: PoolStatus) -> None:
    """Show the conditions of a GPUPool, and its last plan."""
    _POOLS.show(key, status.conditions)
    _drop_plan(key)
    if (plan := status.plan) is None:
        return
    for when, gpus in (("Today", plan.gpus_today), ("Planned", plan.gpus)):
        POOL_GPUS.labels(key.namespace, key.name, when).set(gpus)
    for service in plan.services:
        for when, percent in (
            ("Measured", service.measured_percent),
            ("Today", service.today_percent),
            ("Planned", service.planned_percent),
        ):
            if percent is not None:
                POOL_IN_TIME.labels(key.namespace, key.name, service.name, when).set(percent / 100)


def drop_service(key: Key) -> None:
    """Drop what is shown of an LLMService that is gone."""
    _SERVICES.drop(key)


def drop_pool(key: Key) -> None:
    """Drop what is shown of a GPUPool that is gone."""
    _POOLS.drop(key)
    _drop_plan(key)


def drop_all_objects() -> None:
    """Drop what is shown of all objects: another replica tells of them."""
    _SERVICES.drop_all()
    _POOLS.drop_all()
    POOL_IN_TIME.clear()
    POOL_GPUS.clear()


def _drop_plan(key: Key) -> None:
    for gauge in (POOL_IN_TIME, POOL_GPUS):
        gauge.remove_by_labels({"namespace": key.namespace, "pool": key.name})
