"""Envoy's static configuration: listeners, filters and where the picker is.

A request passes: header hygiene → API key → `model` read from the body into metadata → request limits →
picker chooses the engine → router; an engine's error is rewritten on its way back. Everything that changes
(routes, clusters, endpoints) comes from the picker over ADS, and stays in force while the picker is away.
Listeners open only when the first configuration has come, so an Envoy that never met a picker is not ready
rather than wrong.

`chart_files` makes the chart's copies.
"""

from dataclasses import dataclass
from typing import Any

from headrace_gateway import names
from headrace_gateway.balancers import needed_headers
from headrace_gateway.headers import (
    CLIENT_HEADER,
    ENGINE_HEADER,
    EXCLUDE_HEADER,
    LEAVING_HEADER,
    RESUMED_HEADER,
    REVISION_HEADER,
    ROUTE_HEADER,
)
from headrace_gateway.replies import STAY
from headrace_gateway.xds import credentials, filters
from headrace_gateway.xds.engine_errors import engine_errors
from headrace_gateway.xds.filters import typed_config
from headrace_gateway.xds.overload import overload_manager
from headrace_gateway.xds.request_limits import limiter

ACCESS_LOG = {
    "from": "client",  # or `relay`: a stream has a line more for each engine that it went to
    "time": "%START_TIME%",  # when the request came
    "request_id": "%REQ(x-request-id)%",
    "traceparent": "%REQ(traceparent)%",
    "client": f"%REQ({CLIENT_HEADER})%",
    "address": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "method": "%REQ(:method)%",
    "path": "%PATH(NQ)%",
    "service": "%ROUTE_NAME%",
    "engine": "%UPSTREAM_HOST%",
    "status": "%RESPONSE_CODE%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "flags": "%RESPONSE_FLAGS%",
    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "request_bytes": "%BYTES_RECEIVED%",
    "response_bytes": "%BYTES_SENT%",
    "first_byte_ms": "%COMMON_DURATION(DS_RX_BEG:US_RX_BEG:ms)%",  # until the engine began to answer
    "duration_ms": "%DURATION%",
}
"""A line for each request, in JSON, on standard output; what was asked and answered is not in it."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What differs between the chart and a test; `str` where Helm may put a template."""

    picker_host: str
    ads_port: int | str = 9002
    picks_port: int | str = 9003
    max_body_bytes: int | str = 4 << 20
    memory_bytes: int | str = 1 << 30  # that Envoy may have; it sheds load well below
    certificate: str = ""  # path of a `credentials.certificate_document`; empty: plain HTTP
    api_keys: str = ""  # path of a `credentials.api_keys_document`; empty: everyone may come in
    drain_file: str = ""  # path of a file; while it says 1, idle connections are closed
    address: str = "0.0.0.0"  # noqa: S104  (a gateway listens on every interface of its pod)
    port: int = 8080
    ready_port: int = 8081
    admin_port: int = 9901
    relay_folder: str = "/run/relay"  # with the sockets between this Envoy and the relay beside it


def bootstrap(settings: Bootstrap) -> dict[str, Any]:
    """Make the bootstrap document for `envoy -c`; node and cluster names come from Envoy's command line."""
    return {
        "admin": {"address": _address("127.0.0.1", settings.admin_port)},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": names.XDS_CLUSTER}}],
            },
            "cds_config": _from_picker(),
        },
        "static_resources": {
            "listeners": [
                _gateway_listener(settings),
                _engines_listener(settings),
                _ready_listener(settings),
            ],
            "clusters": [
                _picker_cluster(settings),
                _xds_cluster(settings),
                _admin_cluster(settings),
                _relay_cluster(settings),
            ],
        },
        "overload_manager": overload_manager(settings.memory_bytes, settings.drain_file),
    }


def _gateway_listener(settings: Bootstrap) -> dict[str, Any]:
    manager = typed_config(
        "envoy.filters.network.http_connection_manager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="gateway",
        rds={"route_config_name": names.ROUTES, "config_source": _from_picker()},
        access_log=[_access_log(ACCESS_LOG)],
        http_filters=[
            *([credentials.api_key_filter(settings.api_keys)] if settings.api_keys else []),
            filters.model_reader(),
            limiter(),
            filters.picker_filter(settings.max_body_bytes, needed_headers()),
            *engine_errors(),
            filters.router(),
        ],
        early_header_mutation_extensions=[filters.header_hygiene()],
        local_reply_config=filters.local_replies(settings.max_body_bytes),
        use_remote_address=True,
        normalize_path=True,
        merge_slashes=True,
        path_with_escaped_slashes_action="KEEP_UNCHANGED",  # only models, whose names have slashes, take one
        common_http_protocol_options={
            "headers_with_underscores_action": "DROP_HEADER",
            "idle_timeout": "3600s",
        },
        # Each stream may hold a whole body until the picker has seen it.
        http2_protocol_options={"max_concurrent_streams": 100},
        # How an idle connection of a stopping pod is closed: for the delay Envoy is deaf, and then hangs up.
        drain_timeout="1s",
        delayed_close_timeout="0.25s",
        stream_idle_timeout=f"{names.IDLE_SECONDS}s",
        request_headers_timeout="10s",
        request_timeout="60s",  # to receive the request; an answer may take as long as it streams
        server_name="headrace",
    )
    chain: dict[str, Any] = {"filters": [manager]}
    if settings.certificate:
        chain["transport_socket"] = credentials.tls_socket(settings.certificate)
    return {
        "name": "gateway",
        "address": _address(settings.address, settings.port),
        # Also the largest request body: it is held until the picker has seen it.
        "per_connection_buffer_limit_bytes": settings.max_body_bytes,
        "filter_chains": [chain],
    }


def _engines_listener(settings: Bootstrap) -> dict[str, Any]:
    """Give the relay its way to engines: the picker chooses, and each try has an engine of its own."""
    told = (*needed_headers(), *_OF_THE_RELAY)
    manager = typed_config(
        "envoy.filters.network.http_connection_manager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="engines",
        route_config={
            "virtual_hosts": [
                {
                    "name": "engines",
                    "domains": ["*"],
                    "routes": [
                        _SURPLUSES_ROUTE,
                        {
                            "match": {"prefix": "/"},
                            "route": {
                                "cluster_header": ROUTE_HEADER,
                                "timeout": "0s",
                                "idle_timeout": f"{names.IDLE_SECONDS}s",
                                "retry_policy": filters.RETRIES,
                            },
                        },
                    ],
                    "request_headers_to_remove": [ROUTE_HEADER, *_OF_THE_RELAY],
                    "response_headers_to_add": [
                        {
                            "header": {"key": key, "value": value},
                            "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",  # whatever the engine says
                        }
                        for key, value in ((ENGINE_HEADER, "%UPSTREAM_HOST%"), (REVISION_HEADER, _REVISION))
                    ],
                }
            ]
        },
        access_log=[
            {
                **_access_log({**ACCESS_LOG, "from": "relay", "service": "%UPSTREAM_CLUSTER%"}),
                "filter": {"and_filter": {"filters": [_NO_QUESTION, _NO_REFUSED_OFFER]}},
            }
        ],
        http_filters=[
            filters.picker_filter(settings.max_body_bytes, told, f"%REQ({ROUTE_HEADER})%"),
            *engine_errors(),
            filters.router(),
        ],
        local_reply_config=filters.local_replies(settings.max_body_bytes, to_relay=True),
        # All that a client says went through the other listener.
        generate_request_id=False,
        preserve_external_request_id=True,
        skip_xff_append=True,
        common_http_protocol_options={"idle_timeout": "3600s"},
        stream_idle_timeout=f"{names.IDLE_SECONDS}s",
    )
    return {
        "name": "engines",
        "address": _socket(settings, names.ENGINES_SOCKET),
        "per_connection_buffer_limit_bytes": settings.max_body_bytes,
        "filter_chains": [{"filters": [manager]}],
    }


def _access_log(fields: dict[str, str]) -> dict[str, Any]:
    return typed_config(
        "envoy.access_loggers.stdout",
        "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
        log_format={"json_format": fields},
    )


def _ready_listener(settings: Bootstrap) -> dict[str, Any]:
    """Serve `/ready` for the kubelet and Envoy's metrics for Prometheus; nothing else of the admin's.

    The admin's `/healthcheck/fail` turns `/ready` 503, which is how a pod drains.
    """
    health = typed_config(
        "envoy.filters.http.health_check",
        "envoy.extensions.filters.http.health_check.v3.HealthCheck",
        pass_through_mode=False,
        headers=[{"name": ":path", "string_match": {"exact": "/ready"}}],
    )
    manager = typed_config(
        "envoy.filters.network.http_connection_manager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="ready",
        route_config={"virtual_hosts": [{"name": "metrics", "domains": ["*"], "routes": [_METRICS_ROUTE]}]},
        http_filters=[health, filters.router()],
    )
    return {
        "name": "ready",
        "address": _address(settings.address, settings.ready_port),
        "filter_chains": [{"filters": [manager]}],
        "ignore_global_conn_limit": True,
        # Under overload, too: a gateway that refuses requests says so itself, and stays in its Service.
        "bypass_overload_manager": True,
    }


MOST_PICKERS = 100  # of which one that is not degraded does for all


def _picker_cluster(settings: Bootstrap) -> dict[str, Any]:
    """Make the cluster for picks: with no healthy picker Envoy goes on at once, without waiting.

    A picker that dies is left out after a few picks, which are asked of another; checks find it later. One
    that is degraded, since it has lost the API server, is asked only if all are.
    """
    # Picks under way; beyond them Envoy balances by itself rather than wait.
    limits = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests", "max_retries"), 2_000)
    cluster = _cluster(names.PICKER_CLUSTER, settings.picker_host, settings.picks_port)
    cluster["load_assignment"]["policy"] = {"overprovisioning_factor": 100 * MOST_PICKERS}
    return {
        **cluster,
        "common_lb_config": _LEFT_OUT_AT_ONCE,
        "lb_policy": "LEAST_REQUEST",  # so that one that is slow gets less to do
        "health_checks": [_check(names.HEALTH_PATH, timeout="0.5s", interval="1s")],
        # One passes a check before that, mostly; by then checks have found who is dead. Of one or all: late
        # answers are better than none.
        "outlier_detection": _ejection(failures=3, time="3s", percent=50),
        "circuit_breakers": {"thresholds": [limits]},
    }


def _ejection(*, failures: int, time: str, percent: int) -> dict[str, Any]:
    """Leave out for a time who gave no connection, or no answer in time, so often in a row."""
    return {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": failures,
        "enforcing_consecutive_5xx": 0,
        "enforcing_consecutive_gateway_failure": 0,
        "enforcing_success_rate": 0,
        "enforcing_local_origin_success_rate": 0,
        "interval": "0.5s",
        "base_ejection_time": time,
        "max_ejection_time": time,
        "max_ejection_percent": percent,
    }


def _check(path: str, **times: str) -> dict[str, Any]:
    """Make the check that asks a picker at `path` whether it is the one, or one, to be asked."""
    return {
        **times,
        "no_traffic_interval": times["interval"],
        "unhealthy_threshold": 2,  # one late answer on a busy node is no failure
        "healthy_threshold": 1,
        "http_health_check": {"path": path},
    }


def _xds_cluster(settings: Bootstrap) -> dict[str, Any]:
    """Make the cluster for configuration: the picker that leads, which tells what all have; if none, any."""
    http2 = typed_config(
        "",
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        explicit_http_config={
            "http2_protocol_options": {"connection_keepalive": {"interval": "5s", "timeout": "2s"}}
        },
    )["typed_config"]
    cluster = _cluster(names.XDS_CLUSTER, settings.picker_host, settings.ads_port)
    [group] = cluster["load_assignment"]["endpoints"]
    [host] = group["lb_endpoints"]
    host["endpoint"]["health_check_config"] = {"port_value": settings.picks_port}
    return {
        **cluster,
        "common_lb_config": {"healthy_panic_threshold": {"value": 1}},
        "health_checks": [_check(names.LEADER_PATH, timeout="5s", interval="2s")],
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
    }


def _admin_cluster(settings: Bootstrap) -> dict[str, Any]:
    return _static(names.ADMIN_CLUSTER, _address("127.0.0.1", settings.admin_port))


def _relay_cluster(settings: Bootstrap) -> dict[str, Any]:
    """Make the cluster of the relay, which is left out as soon as it does not answer."""
    limits = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 40_000)
    return {
        **_static(names.RELAY_CLUSTER, _socket(settings, names.RELAY_SOCKET)),
        "common_lb_config": _LEFT_OUT_AT_ONCE,
        "health_checks": [_check(names.HEALTH_PATH, timeout="2s", interval="1s")],
        "outlier_detection": _ejection(failures=1, time="2s", percent=100),
        "circuit_breakers": {"thresholds": [limits]},
    }


def _cluster(name: str, host: str, port: int | str) -> dict[str, Any]:
    return {**_static(name, _address(host, port)), "type": "STRICT_DNS"}


def _static(name: str, address: dict[str, Any]) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": address}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _address(host: str, port: int | str) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def _socket(settings: Bootstrap, name: str) -> dict[str, Any]:
    return {"pipe": {"path": f"{settings.relay_folder}/{name}"}}


def _from_picker() -> dict[str, Any]:
    """Take routes from the picker and wait for it for ever: serving none is worse than not being ready."""
    return {"resource_api_version": "V3", "ads": {}, "initial_fetch_timeout": "0s"}


_REVISION = f"%UPSTREAM_METADATA({names.ENGINE_METADATA}:{names.REVISION})%"
# Of a cluster that requests do without: who is left out is asked no more at once, where Envoy's own default
# takes up to a second if another change was just before.
_LEFT_OUT_AT_ONCE = {"healthy_panic_threshold": {"value": 0}, "update_merge_window": "0s"}
_GET = {"name": ":method", "string_match": {"exact": "GET"}}
_NO_QUESTION = {"header_filter": {"header": {**_GET, "invert_match": True}}}  # of the relay's own
_NO_REFUSED_OFFER = filters.status_filter("NE", STAY.status)  # a stream that waits makes one after the other
_OF_THE_RELAY = (EXCLUDE_HEADER, RESUMED_HEADER, LEAVING_HEADER)
_SURPLUSES_ROUTE = {
    "match": {"path": names.SURPLUSES_PATH, "headers": [_GET]},
    "route": {"cluster": names.PICKER_CLUSTER, "timeout": "2s"},
    "typed_per_filter_config": {
        names.PICKER_FILTER: {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute",
            "disabled": True,
        }
    },
}
_METRICS_ROUTE = {
    "match": {"path": names.METRICS_PATH, "headers": [_GET]},
    "route": {"cluster": names.ADMIN_CLUSTER, "timeout": "10s"},
}
