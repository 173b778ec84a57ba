"""Envoy's static configuration: listeners, filters and where the picker is.

A request passes: header hygiene → `model` read from the body into metadata → picker chooses the engine →
router. Everything that changes (routes, clusters, endpoints) comes from the picker over ADS, and stays in
force while the picker is away. Listeners open only when the first configuration has come, so an Envoy that
never met a picker is not ready rather than wrong.

`python -m headrace_sidecar.gateway.bootstrap` writes the chart's copy, in which Helm fills in the picker's
address and the body limit.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headrace_sidecar.gateway import filters, names
from headrace_sidecar.gateway.filters import typed

CHART_FILE = Path("charts/headrace/files/envoy.yaml")

IDLE_TIMEOUT = "600s"  # longest silence within one stream: a long prompt's prefill behind a long queue


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What differs between the chart and a test; `str` where Helm may put a template."""

    picker_host: str
    ads_port: int | str = 9002
    picks_port: int | str = 9003
    max_body_bytes: int | str = 4 << 20
    address: str = "0.0.0.0"  # noqa: S104  (a gateway listens on every interface of its pod)
    port: int = 8080
    ready_port: int = 8081
    admin_port: int = 9901


CHART = Bootstrap(
    picker_host='{{ include "headrace.fullname" . }}-picker.{{ .Release.Namespace }}.svc',
    max_body_bytes="{{ .Values.gateway.maxBodyBytes | int64 }}",
)


def bootstrap(settings: Bootstrap) -> dict[str, Any]:
    """The bootstrap document; `envoy -c` reads it, and takes node and cluster names from its command line."""
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
            "listeners": [_gateway_listener(settings), _ready_listener(settings)],
            "clusters": [_picker_cluster(settings), _xds_cluster(settings), _admin_cluster(settings)],
        },
        "overload_manager": _connection_limit(50_000),
    }


def chart_file() -> str:
    """The chart's copy; long lines stay whole, since a Helm template must."""
    return yaml.safe_dump(bootstrap(CHART), sort_keys=False, width=10_000)


def _gateway_listener(settings: Bootstrap) -> dict[str, Any]:
    manager = typed(
        "envoy.filters.network.http_connection_manager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="gateway",
        rds={"route_config_name": names.ROUTES, "config_source": _from_picker()},
        http_filters=[
            filters.model_reader(),
            filters.picker_filter(settings.max_body_bytes),
            filters.router(),
        ],
        early_header_mutation_extensions=[filters.header_hygiene()],
        local_reply_config=filters.local_replies(settings.max_body_bytes),
        use_remote_address=True,
        normalize_path=True,
        merge_slashes=True,
        path_with_escaped_slashes_action="REJECT_REQUEST",
        common_http_protocol_options={
            "headers_with_underscores_action": "DROP_HEADER",
            "idle_timeout": "3600s",
        },
        # Each stream may hold a whole body until the picker has seen it.
        http2_protocol_options={"max_concurrent_streams": 100},
        stream_idle_timeout=IDLE_TIMEOUT,
        request_headers_timeout="10s",
        request_timeout="60s",  # to receive the request; an answer may take as long as it streams
        server_name="headrace",
    )
    return {
        "name": "gateway",
        "address": _address(settings.address, settings.port),
        # Also the largest request body: it is held until the picker has seen it.
        "per_connection_buffer_limit_bytes": settings.max_body_bytes,
        "filter_chains": [{"filters": [manager]}],
    }


def _ready_listener(settings: Bootstrap) -> dict[str, Any]:
    """`/ready` for the kubelet, and Envoy's metrics for Prometheus; nothing else of the admin's is reachable.

    The admin's `/healthcheck/fail` turns `/ready` 503, which is how a pod drains.
    """
    health = typed(
        "envoy.filters.http.health_check",
        "envoy.extensions.filters.http.health_check.v3.HealthCheck",
        pass_through_mode=False,
        headers=[{"name": ":path", "string_match": {"exact": "/ready"}}],
    )
    manager = typed(
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
    }


def _picker_cluster(settings: Bootstrap) -> dict[str, Any]:
    """For picks: no healthy picker means going on at once, without waiting for a timeout."""
    check = {
        "timeout": "0.5s",
        "interval": "1s",
        "no_traffic_interval": "1s",
        "unhealthy_threshold": 2,  # one late answer on a busy node is no failure
        "healthy_threshold": 1,
        "http_health_check": {"path": names.HEALTH_PATH},
    }
    # Picks under way; beyond them Envoy balances by itself rather than wait.
    limits = {"max_connections": 2_000, "max_pending_requests": 2_000, "max_requests": 2_000}
    return {
        **_cluster(names.PICKER_CLUSTER, settings.picker_host, settings.picks_port),
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "health_checks": [check],
        "circuit_breakers": {"thresholds": [limits]},
    }


def _xds_cluster(settings: Bootstrap) -> dict[str, Any]:
    http2 = typed(
        "",
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        explicit_http_config={
            "http2_protocol_options": {"connection_keepalive": {"interval": "5s", "timeout": "2s"}}
        },
    )["typed_config"]
    return {
        **_cluster(names.XDS_CLUSTER, settings.picker_host, settings.ads_port),
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
    }


def _admin_cluster(settings: Bootstrap) -> dict[str, Any]:
    return {**_cluster(names.ADMIN_CLUSTER, "127.0.0.1", settings.admin_port), "type": "STATIC"}


def _cluster(name: str, host: str, port: int | str) -> dict[str, Any]:
    endpoint = {"endpoint": {"address": _address(host, port)}}
    return {
        "name": name,
        "type": "STRICT_DNS",
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _connection_limit(connections: int) -> dict[str, Any]:
    monitor = typed(
        "envoy.resource_monitors.global_downstream_max_connections",
        "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
        max_active_downstream_connections=connections,
    )
    return {"resource_monitors": [monitor]}


def _address(host: str, port: int | str) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def _from_picker() -> dict[str, Any]:
    """Waits for the picker as long as it takes: serving no routes is worse than not being ready."""
    return {"resource_api_version": "V3", "ads": {}, "initial_fetch_timeout": "0s"}


_METRICS_ROUTE = {
    "match": {
        "path": names.METRICS_PATH,
        "headers": [{"name": ":method", "string_match": {"exact": "GET"}}],
    },
    "route": {"cluster": names.ADMIN_CLUSTER, "timeout": "10s"},
}


if __name__ == "__main__":
    CHART_FILE.parent.mkdir(parents=True, exist_ok=True)
    CHART_FILE.write_text(chart_file())
