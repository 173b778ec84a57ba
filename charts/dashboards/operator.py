"""The operator: what it says of every service, and how it gets on itself."""

from charts.dashboards.panels import (
    CONDITIONS,
    COUNT,
    GREEN,
    ORANGE,
    PER_SECOND,
    RATE,
    RED,
    SECONDS,
    Board,
    Row,
    lines,
    number,
    quantiles,
    rows,
)

FAILED = 'result=~"api_error|timeout|error"'


def having(condition: str, value: int) -> str:
    """Count the services that have a condition at this value."""
    return f'count(headrace_service_condition{{condition="{condition}"}} == {value}) or vector(0)'


NOW = Row(
    "Services",
    (
        number("Services", COUNT, 'count(headrace_service_condition{condition="Ready"})'),
        number("Ready", COUNT, having("Ready", 1)),
        number("Specs refused", COUNT, having("Accepted", 0), steps=((0, GREEN), (1, ORANGE))),
        number("Policy not applied", COUNT, having("PolicyApplied", 0), steps=((0, GREEN), (1, ORANGE))),
        number("Degraded", COUNT, having("Degraded", 1), steps=((0, GREEN), (1, RED))),
        number("Under way", COUNT, having("Reconciling", 1)),
    ),
)
CONDITIONS_ROW = Row(
    "Conditions, as kubectl describe tells them",
    (
        rows(
            "What is not as it should be",
            'headrace_service_condition{condition!~"Reconciling|Stalled|Degraded"} < 1'
            ' or headrace_service_condition{condition="Degraded"} == 1',
            ("namespace", "service", "condition", "reason"),
            about="docs/troubleshooting.md has advice for each reason.",
            value=CONDITIONS,
        ),
        rows(
            "All",
            "headrace_service_condition",
            ("namespace", "service", "condition", "reason"),
            value=CONDITIONS,
        ),
    ),
)
RECONCILES = Row(
    "Reconciles",
    (
        lines(
            "Reconciles by result",
            PER_SECOND,
            (
                f"sum by (result) (rate(headrace_operator_reconcile_seconds_count{RATE}))",
                "{{result}}",
            ),
            stacked=True,
        ),
        lines("Duration", SECONDS, *quantiles("headrace_operator_reconcile_seconds", "")),
        lines("Waiting for a worker", COUNT, ("headrace_operator_queue_depth", "{{pod}}")),
        lines("Longest wait", SECONDS, ("headrace_operator_queue_age_seconds", "{{pod}}")),
    ),
)
API = Row(
    "API server",
    (
        lines(
            "Requests",
            PER_SECOND,
            (
                f"sum by (verb, code) (rate(headrace_operator_api_requests_total{RATE}))",
                "{{verb}} {{code}}",
            ),
            about="Code 0: no answer.",
        ),
        lines(
            "Changes made",
            PER_SECOND,
            (
                f"sum by (action, kind) (rate(headrace_operator_actions_total{RATE}))",
                "{{action}} {{kind}}",
            ),
            about="Steady changes of one kind: somebody else keeps changing these objects.",
        ),
        lines(
            "Since the last event",
            SECONDS,
            ("time() - max by (kind) (headrace_operator_last_event_timestamp_seconds)", "{{kind}}"),
            about="Quiet clusters have few events; bookmarks count too.",
        ),
    ),
)
PROCESS = Row(
    "Replicas",
    (
        lines(
            "Which one writes",
            COUNT,
            ("headrace_operator_leader", "{{pod}}"),
            about="The one that holds the Lease; the others stand by.",
        ),
        lines(
            "Memory",
            "bytes",
            ("process_resident_memory_bytes and on (instance) headrace_operator_queue_depth", "{{pod}}"),
        ),
        lines(
            "CPU",
            COUNT,
            (
                f"rate(process_cpu_seconds_total{RATE}) and on (instance) headrace_operator_queue_depth",
                "{{pod}}",
            ),
            about="Cores.",
        ),
    ),
)
BOARD = Board(
    "operator",
    "Headrace / Operator",
    "Every LLMService's conditions, and how the operator gets on.",
    (NOW, CONDITIONS_ROW, RECONCILES, API, PROCESS),
)
