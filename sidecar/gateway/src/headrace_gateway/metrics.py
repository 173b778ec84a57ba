"""What the picker tells Prometheus."""

from prometheus_client import Counter, Gauge, Histogram

from headrace_gateway.names import SERVICE_LABELS, service_labels

PICKS = Counter(
    "headrace_gateway_picks", "Requests for which an engine was chosen", [*SERVICE_LABELS, "balancer"]
)
REFUSALS = Counter("headrace_gateway_refusals", "Requests that the picker refused", [*SERVICE_LABELS, "code"])
PICK_SECONDS = Histogram(
    "headrace_gateway_pick_seconds",
    "Time to read a request and choose its engine",
    buckets=(0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25),
)
ENGINES = Gauge(
    "headrace_gateway_engines", "Ready engines by what the picker knows of them", [*SERVICE_LABELS, "state"]
)
SERVICES = Gauge("headrace_gateway_services", "Services that the gateway serves")
LEADS = Gauge("headrace_gateway_leader", "1 while this picker is the one that configures Envoys")
PEERS = Gauge("headrace_gateway_peers", "Other pickers that this one tells what it sent where")
PEER_PLACEMENTS = Counter("headrace_gateway_peer_placements", "Requests that other pickers said they placed")
SYNCED = Gauge("headrace_gateway_synced", "1 when the picker has a whole view of services and engines")
ENVOYS = Gauge("headrace_gateway_envoys", "Envoys connected for their configuration")
ADS_REFUSALS = Counter("headrace_gateway_ads_refusals", "Configurations that an Envoy refused", ["type"])
WATCH_RESTARTS = Counter(
    "headrace_gateway_watch_restarts", "Kubernetes watches that were started anew", ["kind"]
)
CONFIG_ERRORS = Counter("headrace_gateway_config_errors", "LLMRoutes that could not be used")
REPORTS = Counter("headrace_gateway_reports", "Load reports of engines that were taken in")
LOAD_RECONNECTS = Counter("headrace_gateway_load_reconnects", "Load streams that broke and were opened anew")

# Counters that exist before their first event: a rate that begins with it would miss it.
for _kind in ("LLMRoute", "EndpointSlice"):
    WATCH_RESTARTS.labels(_kind)
for _type in ("Cluster", "ClusterLoadAssignment", "RouteConfiguration"):
    ADS_REFUSALS.labels(_type)


def forget(service: str) -> None:
    """Drop the counts of NAMESPACE/NAME, which is gone: names come and go without end."""
    for each in (PICKS, REFUSALS):
        each.remove_by_labels(dict(zip(SERVICE_LABELS, service_labels(service), strict=True)))
