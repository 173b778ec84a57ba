"""Envoy's clusters, one per service, and the engines in each."""

from collections.abc import Mapping

from envoy.config.cluster.v3 import circuit_breaker_pb2, cluster_pb2, outlier_detection_pb2
from envoy.config.core.v3 import health_check_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.extensions.clusters.aggregate.v3 import cluster_pb2 as aggregate_pb2
from envoy.extensions.load_balancing_policies.least_request.v3 import least_request_pb2
from envoy.extensions.load_balancing_policies.override_host.v3 import override_host_pb2
from envoy.extensions.upstreams.http.v3 import http_protocol_options_pb2
from google.protobuf import any_pb2, message

from headrace_gateway import names
from headrace_gateway.catalog import Catalog, Service
from headrace_gateway.headers import DESTINATION_HEADER
from headrace_gateway.xds.generation_cache import GenerationCache


def clusters(catalog: Catalog, cache: GenerationCache) -> list[cluster_pb2.Cluster]:
    """Make a cluster per service; its endpoints come separately, so that pods may come and go cheaply.

    A service whose streams go through the relay has one more for those.
    """
    relayed = [str(key) for key, service in catalog.services.items() if service.config.resume]
    return [
        *(cache.get_or_make(_cluster, str(key)) for key in catalog.services),
        *(cache.get_or_make(_relay_cluster, name) for name in relayed),
    ]


def relay_cluster(name: str) -> str:
    """Name the cluster of a service's streams; no service has this name."""
    return f"{names.RELAY_CLUSTER}:{name}"


def endpoints(catalog: Catalog) -> list[endpoint_pb2.ClusterLoadAssignment]:
    """List every cluster's engines, also those that are not ready: Envoy finds by itself who serves."""
    return [_assignment(service) for service in catalog.services.values()]


def addresses(service: Service) -> list[str]:
    """List the engines of a service that nobody has ended; those that start are checked until they serve."""
    return sorted({*service.addresses, *service.unready})


def _cluster(name: str) -> cluster_pb2.Cluster:
    return cluster_pb2.Cluster(
        name=name,
        type=cluster_pb2.Cluster.EDS,
        eds_cluster_config={"eds_config": {"resource_api_version": "V3", "ads": {}}, "service_name": name},
        connect_timeout={"seconds": 1},
        load_balancing_policy={"policies": [{"typed_extension_config": _override_host()}]},
        # With every engine ejected or unhealthy, trying one beats refusing; to refuse is what is left then.
        common_lb_config={"healthy_panic_threshold": {"value": 1}},
        ignore_health_on_host_removal=True,
        health_checks=[_HEALTH],
        outlier_detection=_OUTLIERS,
        typed_extension_protocol_options={_PROTOCOL: _packed(HTTP)},
        circuit_breakers=_LIMITS,
    )


def _relay_cluster(name: str) -> cluster_pb2.Cluster:
    """Make the cluster of a service's streams: the relay, or its engines while there is none."""
    both = aggregate_pb2.ClusterConfig(clusters=[names.RELAY_CLUSTER, name])
    return cluster_pb2.Cluster(
        name=relay_cluster(name),
        connect_timeout={"seconds": 1},
        lb_policy=cluster_pb2.Cluster.CLUSTER_PROVIDED,
        cluster_type={"name": "envoy.clusters.aggregate", "typed_config": _packed(both)},
        circuit_breakers=_LIMITS,  # its own retries count: all streams are tried again as the relay dies
    )


def _override_host() -> dict[str, object]:
    """Make the policy: the picker's choice if it made one that is still an endpoint, else least request."""
    fallback = {
        "name": "envoy.load_balancing_policies.least_request",
        "typed_config": _packed(least_request_pb2.LeastRequest(choice_count={"value": 4})),
    }
    policy = override_host_pb2.OverrideHost(
        override_host_sources=[
            {"metadata": {"key": names.PICK_METADATA, "path": [{"key": DESTINATION_HEADER}]}}
        ],
        fallback_policy={"policies": [{"typed_extension_config": fallback}]},
    )
    return {"name": "envoy.load_balancing_policies.override_host", "typed_config": _packed(policy)}


def _assignment(service: Service) -> endpoint_pb2.ClusterLoadAssignment:
    hosts = [_host(address, service.config.port, service.revisions) for address in addresses(service)]
    return endpoint_pb2.ClusterLoadAssignment(
        cluster_name=str(service.key), endpoints=[{"lb_endpoints": hosts}]
    )


def _host(address: str, port: int, revisions: Mapping[str, str]) -> dict[str, object]:
    endpoint = {"address": {"socket_address": {"address": address, "port_value": port}}}
    if address not in revisions:
        return {"endpoint": endpoint}
    revision = {"fields": {names.REVISION: {"string_value": revisions[address]}}}
    return {"endpoint": endpoint, "metadata": {"filter_metadata": {names.ENGINE_METADATA: revision}}}


def _packed(inner: message.Message) -> any_pb2.Any:
    outer = any_pb2.Any()
    outer.Pack(inner)
    return outer


# Also while the control plane is away. A dead engine refuses at once; one that is late three times in a row
# has not answered for a quarter of a minute, which a busy one does.
_HEALTH = health_check_pb2.HealthCheck(
    timeout={"seconds": 5},
    reuse_connection={"value": False},  # vLLM closes it after five seconds anyway
    interval={"seconds": 2},
    no_traffic_interval={"seconds": 2},
    unhealthy_interval={"seconds": 1},
    no_traffic_healthy_interval={"seconds": 2},
    unhealthy_threshold={"value": 3},
    healthy_threshold={"value": 1},
    http_health_check={"path": names.ENGINE_HEALTH_PATH},
)
_PROTOCOL = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
# vLLM closes a connection that was idle for 5 s, and what is sent right then is lost: so Envoy is first.
HTTP = http_protocol_options_pb2.HttpProtocolOptions(
    explicit_http_config={"http_protocol_options": {}},
    common_http_protocol_options={"idle_timeout": {"seconds": 3}},
)
# An engine that refuses connections, or answers 502 to 504 thrice in a row, rests for five seconds at a time.
# Other 5xx are answers to a prompt and say nothing about the engine.
_OUTLIERS = outlier_detection_pb2.OutlierDetection(
    split_external_local_origin_errors=True,
    consecutive_local_origin_failure={"value": 2},
    consecutive_gateway_failure={"value": 3},
    enforcing_consecutive_gateway_failure={"value": 100},
    enforcing_consecutive_5xx={"value": 0},
    enforcing_success_rate={"value": 0},
    interval={"seconds": 1},
    base_ejection_time={"seconds": 5},
    max_ejection_time={"seconds": 5},  # Envoy would make each longer than the one before
    max_ejection_percent={"value": 75},
)
_LIMITS = circuit_breaker_pb2.CircuitBreakers(
    thresholds=[
        {
            "max_connections": {"value": 40_000},
            "max_pending_requests": {"value": 40_000},
            "max_requests": {"value": 40_000},
            "max_retries": {"value": 1_000},
        }
    ]
)
