"""What the operator measures of itself, for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

RECONCILE_SECONDS = Histogram(
    "headrace_operator_reconcile_seconds",
    "Duration of one reconcile.",
    ["result"],  # ok, refused, transient, error
    buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
QUEUE_DEPTH = Gauge("headrace_operator_queue_depth", "Services that wait for a worker.")
QUEUE_AGE = Gauge("headrace_operator_queue_age_seconds", "How long the service due longest has waited.")
API_REQUESTS = Counter(
    "headrace_operator_api_requests", "Requests to the API server; code 0: no answer.", ["verb", "code"]
)
LAST_EVENT = Gauge(
    "headrace_operator_last_event_timestamp_seconds",
    "When the watch of a kind brought something last.",
    ["kind"],
)
ACTIONS = Counter("headrace_operator_actions", "Changes made to owned objects and pods.", ["action", "kind"])
CONDITION = Gauge(
    "headrace_service_condition",
    "Condition of an LLMService: 1 true, 0 false, -1 unknown.",
    ["namespace", "service", "condition"],
)
POLICY_CONFIRM_SECONDS = Histogram(
    "headrace_operator_policy_confirm_seconds",
    "From the write of a policy document to its confirmation by every ready replica.",
    buckets=(0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60, 120),
)
