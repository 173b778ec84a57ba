"""What a service's users get: readiness, latency, targets, load."""

from charts.dashboards.panels import (
    CONDITIONS,
    COUNT,
    GREEN,
    ORANGE,
    PER_SECOND,
    RATE,
    RED,
    SECONDS,
    SHARE,
    TOKENS,
    Board,
    Row,
    Variable,
    lines,
    number,
    quantiles,
    rows,
)

HERE = 'namespace=~"$namespace", service=~"$service"'
MISSED = f'headrace_slo_requests_total{{{HERE}, met="false", target!="All"}}'
ANSWERS = f"envoy_cluster_upstream_rq_xx{{{HERE}}}"


def met(target: str, over: str = RATE) -> str:
    """Return the share of finished requests that met a target, of those that had one."""
    had = f'headrace_slo_requests_total{{{HERE}, target="{target}"'
    return f'sum(rate({had}, met="true"}}{over})) / sum(rate({had}}}{over}))'


def kv_share(by: str) -> str:
    """Return the share of KV blocks in use."""
    used = f'sum{by} (headrace_kv_blocks{{{HERE}, state="used"}})'
    return f"{used} / sum{by} (headrace_kv_blocks{{{HERE}}})"


NOW = Row(
    "Now",
    (
        number(
            "Ready engines",
            COUNT,
            f"max(sum by (instance) (headrace_gateway_engines{{{HERE}}}))",
            about="Engines that the gateway may send requests to.",
            steps=((0, RED), (1, GREEN)),
        ),
        number("Requests", PER_SECOND, f"sum(rate(headrace_requests_arrived_total{{{HERE}}}{RATE}))"),
        number(
            "Met all targets",
            SHARE,
            met("All"),
            about="Of the requests that finished and had a target in spec.slo or of their own.",
            steps=((0, RED), (0.9, ORANGE), (0.99, GREEN)),
        ),
        number("TTFT p95", SECONDS, quantiles("headrace_request_ttft_seconds", HERE, shares=(0.95,))[0][0]),
        number("TPOT p95", SECONDS, quantiles("headrace_request_tpot_seconds", HERE, shares=(0.95,))[0][0]),
        number("KV cache in use", SHARE, kv_share(""), steps=((0, GREEN), (0.9, ORANGE))),
    ),
)
STATE = Row(
    "State, as kubectl describe tells it",
    (
        rows(
            "Conditions",
            f"headrace_service_condition{{{HERE}}}",
            ("namespace", "service", "condition", "reason"),
            about="docs/troubleshooting.md has advice for each reason.",
            value=CONDITIONS,
        ),
        rows(
            "Engines",
            f"headrace_engine_info{{{HERE}}} * on (instance) group_left (state) (headrace_engine_state == 1)",
            ("namespace", "service", "pod", "vllm_version", "state"),
        ),
    ),
)
LATENCY = Row(
    "Latency, measured in the engine",
    (
        lines(
            "Time to first token",
            SECONDS,
            *quantiles("headrace_request_ttft_seconds", HERE),
            about="From arrival at vLLM's API server to the first token.",
        ),
        lines(
            "Time per output token",
            SECONDS,
            *quantiles("headrace_request_tpot_seconds", HERE),
            about="Mean of each request.",
        ),
        lines("End-to-end latency", SECONDS, *quantiles("headrace_request_e2e_seconds", HERE)),
        lines(
            "Wait until first scheduled",
            SECONDS,
            *quantiles("headrace_request_queue_seconds", HERE),
            about="A queue here and free KV cache below: the step budget is what is short.",
        ),
    ),
)
TARGETS = Row(
    "Targets",
    (
        lines(
            "Requests that met their target",
            SHARE,
            *((met(target), target) for target in ("All", "TTFT", "TPOT", "E2E")),
            about="Finished requests only; All: every target that the request had.",
        ),
        lines(
            "Requests that missed one",
            PER_SECOND,
            (
                f"sum by (target, set_by) (rate({MISSED}{RATE}))",
                "{{target}} of {{set_by}}",
            ),
            (
                f"sum by (target) (rate(headrace_slo_impossible_requests_total{{{HERE}}}{RATE}))",
                "{{target}} that no engine could meet",
            ),
        ),
        lines(
            "Longest gap between two tokens",
            SECONDS,
            *quantiles("headrace_request_max_itl_seconds", HERE),
        ),
    ),
)
LOAD = Row(
    "Load",
    (
        lines(
            "Requests in the engines",
            COUNT,
            (f"sum by (state) (headrace_requests{{{HERE}}})", "{{state}}"),
            stacked=True,
        ),
        lines(
            "Waiting, by engine",
            COUNT,
            (f'headrace_requests{{{HERE}, state="waiting"}}', "{{pod}}"),
            about="Curves that lie apart: the gateway does not spread the load evenly.",
        ),
        lines("KV cache in use, by engine", SHARE, (kv_share(" by (pod)"), "{{pod}}")),
        lines(
            "Preemptions",
            PER_SECOND,
            (f"sum by (pod) (rate(headrace_preemptions_total{{{HERE}}}{RATE}))", "{{pod}}"),
            about="Running requests that had to give their KV back: the cache is short.",
        ),
    ),
)
TRAFFIC = Row(
    "Traffic",
    (
        lines(
            "Arrived and left",
            PER_SECOND,
            (f"sum(rate(headrace_requests_arrived_total{{{HERE}}}{RATE}))", "arrived"),
            (f"sum(rate(headrace_requests_left_total{{{HERE}}}{RATE}))", "left"),
        ),
        lines("Prompt tokens", TOKENS, *quantiles("headrace_request_prompt_tokens", HERE)),
        lines("Output tokens", TOKENS, *quantiles("headrace_request_output_tokens", HERE)),
        lines(
            "Answers at the gateway",
            PER_SECOND,
            (
                f"sum by (envoy_response_code_class) (rate({ANSWERS}{RATE}))",
                "{{envoy_response_code_class}}xx",
            ),
            (
                f"sum by (code) (rate(headrace_gateway_refusals_total{{{HERE}}}{RATE}))",
                "refused: {{code}}",
            ),
        ),
    ),
)
BOARD = Board(
    "service",
    "Headrace / Service",
    "One LLMService as its users feel it.",
    (NOW, STATE, LATENCY, TARGETS, LOAD, TRAFFIC),
    (
        Variable("namespace", "headrace_engine_info", "namespace"),
        Variable("service", "headrace_engine_info", "service"),
    ),
)
