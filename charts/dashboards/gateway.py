"""Envoy and the picker: what clients get, which engines are chosen, whether configuration arrives."""

from charts.dashboards.panels import (
    COUNT,
    GREEN,
    ORANGE,
    PER_SECOND,
    RATE,
    RED,
    SECONDS,
    SHARE,
    Board,
    Row,
    lines,
    number,
    quantiles,
)

GATEWAY = 'envoy_http_conn_manager_prefix="gateway"'
SERVICES = 'service!=""'  # Envoy's clusters that are services
NAME = "{{namespace}}/{{service}}"
MILLISECONDS, BYTES = "ms", "bytes"
BY_SERVICE = " by (namespace, service)"


def count(metric: str, by: str = "") -> str:
    """Sum the rate of a counter."""
    return f"sum{by} (rate({metric}{RATE}))"


ANSWERS = count(f"envoy_http_downstream_rq_xx{{{GATEWAY}}}")
FAILURES = count(f'envoy_http_downstream_rq_xx{{{GATEWAY}, envoy_response_code_class="5"}}')
DURATION = "envoy_cluster_upstream_rq_time"
EJECTED = f"envoy_cluster_outlier_detection_ejections_active{{{SERVICES}}}"
NOW = Row(
    "Now",
    (
        number("Requests", PER_SECOND, ANSWERS),
        number(
            "5xx",
            SHARE,
            f"{FAILURES} / {ANSWERS}",
            steps=((0, GREEN), (0.001, ORANGE), (0.05, RED)),
        ),
        number("Open requests", COUNT, f"sum(envoy_http_downstream_rq_active{{{GATEWAY}}})"),
        number("Client connections", COUNT, f"sum(envoy_http_downstream_cx_active{{{GATEWAY}}})"),
        number(
            "Envoys connected",
            COUNT,
            "sum(headrace_gateway_envoys)",
            about="That ask the picker for their configuration; gateway.replicas of the chart.",
            steps=((0, RED), (1, GREEN)),
        ),
        number(
            "Pickers with the whole view",
            COUNT,
            "sum(headrace_gateway_synced)",
            about="Without one Envoy balances by least requests.",
            steps=((0, RED), (1, GREEN)),
        ),
    ),
)
CLIENTS = Row(
    "Clients",
    (
        lines(
            "Answers by class",
            PER_SECOND,
            (
                count(f"envoy_http_downstream_rq_xx{{{GATEWAY}}}", " by (envoy_response_code_class)"),
                "{{envoy_response_code_class}}xx",
            ),
            stacked=True,
        ),
        lines(
            "5xx of engines, by service",
            PER_SECOND,
            (
                count(
                    f'envoy_cluster_upstream_rq_xx{{{SERVICES}, envoy_response_code_class="5"}}',
                    BY_SERVICE,
                ),
                NAME,
            ),
        ),
        lines(
            "Refused by the picker",
            PER_SECOND,
            (
                count("headrace_gateway_refusals_total", " by (namespace, service, code)"),
                f"{NAME} {{{{code}}}}",
            ),
            about="overloaded: 429, every queue is longer than routing.maxQueue. no_ready_engine: 503.",
        ),
        lines(
            "Duration of requests",
            MILLISECONDS,
            *quantiles(DURATION, SERVICES, "namespace", "service", shares=(0.5, 0.95)),
            about="Until the last byte of the answer.",
        ),
    ),
)
PICKS = Row(
    "Picks",
    (
        lines(
            "Engines picked",
            PER_SECOND,
            (
                count("headrace_gateway_picks_total", " by (namespace, service, balancer)"),
                f"{NAME} {{{{balancer}}}}",
            ),
        ),
        lines(
            "Which picker leads",
            COUNT,
            ("headrace_gateway_leader", "{{pod}}"),
            about="The one that holds the Lease configures Envoys; all of them choose.",
        ),
        lines(
            "Pickers that each picker knows",
            COUNT,
            ("headrace_gateway_peers", "{{pod}}"),
            about="One less than there are; each tells the others what it sent where.",
        ),
        lines(
            "Picks that other pickers told of",
            PER_SECOND,
            (count("headrace_gateway_peer_placements_total", " by (pod)"), "{{pod}}"),
            about="None, and others pick: pickers do not reach each other at port 9004, UDP.",
        ),
        lines("Duration of a pick", SECONDS, *quantiles("headrace_gateway_pick_seconds", "")),
        lines(
            "Requests that went on without the picker",
            PER_SECOND,
            (
                count(
                    f"envoy_cluster_ext_authz_failure_mode_allowed{{{SERVICES}}}",
                    BY_SERVICE,
                ),
                NAME,
            ),
            about="It was away or too late: Envoy balanced by least requests.",
        ),
    ),
)
ENGINES = Row(
    "Engines",
    (
        lines(
            "Ready engines",
            COUNT,
            (
                "max by (namespace, service, state) (headrace_gateway_engines)",
                f"{NAME} {{{{state}}}}",
            ),
            about="silent: the picker does not get their load and balances them by what it sent there.",
        ),
        lines(
            "Engines taken out",
            COUNT,
            (
                f"max by (namespace, service) ({EJECTED})",
                NAME,
            ),
            about="They refused connections or answered 502 to 504 three times in a row.",
        ),
        lines(
            "Load reports taken",
            PER_SECOND,
            (count("headrace_gateway_reports_total", " by (pod)"), "{{pod}}"),
        ),
        lines(
            "Requests under way",
            COUNT,
            (f"sum by (namespace, service) (envoy_cluster_upstream_rq_active{{{SERVICES}}})", NAME),
        ),
    ),
)
STREAMS = Row(
    "Streams",
    (
        lines(
            "Streams whose engine was lost or stopped",
            PER_SECOND,
            (count("headrace_relay_streams_moved_total", BY_SERVICE), f"{NAME} moved in time"),
            (count("headrace_relay_streams_resumed_total", BY_SERVICE), f"{NAME} answered whole"),
            (count("headrace_relay_streams_failed_total", BY_SERVICE), f"{NAME} ended with an error"),
            (count("headrace_relay_engines_lost_total", BY_SERVICE), f"{NAME} engines lost"),
        ),
        lines(
            "Pause of a stream that changed its engine",
            SECONDS,
            *quantiles("headrace_relay_pause_seconds", "", shares=(0.5, 0.95)),
            about="Until the client has another token.",
        ),
        lines(
            "Streams by whether another engine could go on",
            PER_SECOND,
            (count("headrace_relay_streams_total", " by (resumable)"), "{{resumable}}"),
            about="no: several choices, more than text, /v1/responses, or the relay has no memory left.",
        ),
        lines("Open streams", COUNT, ("headrace_relay_open_streams", "{{pod}}")),
        lines(
            "Streams that wait for room",
            COUNT,
            (f"sum{BY_SERVICE} (headrace_relay_waiting_streams)", NAME),
            about="They stepped back after a slice, or were preempted, and no engine has room for them.",
        ),
        lines("Request bodies that are kept", BYTES, ("headrace_relay_held_bytes", "{{pod}}")),
        lines(
            "Delay in the relay",
            SECONDS,
            ("headrace_relay_delay_seconds", "{{pod}}"),
            about="Above 0.25 s new streams go round it: run more gateway.replicas.",
        ),
    ),
)
CONFIGURATION = Row(
    "Configuration",
    (
        lines("Services", COUNT, ("max(headrace_gateway_services)", "services")),
        lines(
            "Envoys that hold a stream to the picker",
            COUNT,
            ("sum(envoy_control_plane_connected_state)", "as Envoy says"),
            ("sum(headrace_gateway_envoys)", "as the picker says"),
        ),
        lines(
            "Not taken or not read",
            PER_SECOND,
            (count("headrace_gateway_ads_refusals_total", " by (type)"), "Envoy refused {{type}}"),
            (count("headrace_gateway_config_errors_total"), "LLMRoutes that could not be used"),
        ),
        lines(
            "Connections made anew",
            PER_SECOND,
            (count("headrace_gateway_watch_restarts_total", " by (kind)"), "watch of {{kind}}"),
            (count("headrace_gateway_load_reconnects_total"), "load of an engine"),
        ),
    ),
)
BOARD = Board(
    "gateway",
    "Headrace / Gateway",
    "What clients get from Envoy, and which engines the picker chooses.",
    (NOW, CLIENTS, PICKS, ENGINES, STREAMS, CONFIGURATION),
)
