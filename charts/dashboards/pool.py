"""A pool's GPUs: who shares them, what its last plan says, and how turns go."""

from charts.dashboards.panels import (
    CONDITIONS,
    COUNT,
    PER_SECOND,
    RATE,
    SHARE,
    Board,
    Row,
    Variable,
    lines,
    number,
    rows,
)

HERE = 'namespace=~"$namespace", pool=~"$pool"'
MEMBERS = f"count by (namespace, service) (headrace_pool_in_time_ratio{{{HERE}}})"


def gpus(when: str) -> str:
    """Return the GPUs of all chosen pools."""
    return f'sum(headrace_pool_gpus{{{HERE}, when="{when}"}})'


def in_time(when: str) -> str:
    """Return the share of requests in time, of the service that has the least."""
    return f'min(headrace_pool_in_time_ratio{{{HERE}, when="{when}"}})'


def of_members(metric: str) -> str:
    """Return the rate of a counter of engines, summed over those of each service that a pool plans for."""
    of_all = f'sum by (namespace, service) (rate({metric}{{namespace=~"$namespace"}}{RATE}))'
    return f"{of_all} and on (namespace, service) {MEMBERS}"


NOW = Row(
    "Now",
    (
        number("GPUs", COUNT, gpus("Today"), about="That the services have, as of the last plan."),
        number("GPUs of the last plan", COUNT, gpus("Planned")),
        number(
            "Least in time, planned",
            SHARE,
            in_time("Planned"),
            about="Requests that should meet all targets by the last plan, of the service with the fewest.",
        ),
    ),
)
STATE = Row(
    "State, as kubectl describe tells it",
    (
        rows(
            "Conditions",
            f"headrace_pool_condition{{{HERE}}}",
            ("namespace", "pool", "condition", "reason"),
            about="docs/troubleshooting.md has advice for each reason.",
            value=CONDITIONS,
        ),
    ),
)
PLAN = Row(
    "Plans",
    (
        lines(
            "GPUs, today and planned", COUNT, (f"sum by (when) (headrace_pool_gpus{{{HERE}}})", "{{when}}")
        ),
        lines(
            "Requests in time",
            SHARE,
            (f"headrace_pool_in_time_ratio{{{HERE}}}", "{{service}} {{when}}"),
            about="Measured by the engines; estimated for those of today, and for the plan.",
        ),
    ),
)
TURNS = Row(
    "Turns, of services that it plans for",
    (
        lines("Turns taken", PER_SECOND, (of_members("headrace_turns_total"), "{{service}}")),
        lines(
            "Time waited for turns",
            COUNT,
            (of_members("headrace_turn_wait_seconds_total"), "{{service}}"),
            about="Engines that wait, on the mean, while they have requests to compute.",
        ),
    ),
)
BOARD = Board(
    "pool",
    "Headrace / GPU pool",
    "Services that share the GPUs of a GPUPool.",
    (NOW, STATE, PLAN, TURNS),
    (
        Variable("namespace", "headrace_pool_condition", "namespace"),
        Variable("pool", "headrace_pool_condition", "pool"),
    ),
)
