"""The whole dynamic configuration of Envoy for one catalog."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from google.protobuf import any_pb2, message

from headrace_gateway.catalog import Catalog
from headrace_gateway.xds import clusters, routes
from headrace_gateway.xds.generation_cache import GenerationCache

CLUSTERS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"

# A route may name only clusters that Envoy has, and a cluster waits for its endpoints: so in this order.
TYPES = (CLUSTERS, ENDPOINTS, ROUTES)


@dataclass(frozen=True, slots=True)
class Resources:
    """All resources of one type; `version` is their hash, so a restarted picker says what it said before.

    `parts` is what of them belongs to each service (`namespace/name`): equal parts mean the same to Envoy. Of
    endpoints it is the addresses, and the UIDs of the pods that have them.
    """

    version: str
    items: Sequence[any_pb2.Any]
    parts: Mapping[str, object] = field(default_factory=dict)


Snapshot = Mapping[str, Resources]


def build_snapshot(catalog: Catalog, cache: GenerationCache) -> Snapshot:
    """Make everything Envoy asks for, by type URL; `cache` is that of the snapshots before."""
    cache.begin_generation()
    owners = catalog.model_owners()
    models: dict[str, list[str]] = {str(key): [] for key in catalog.services}
    for model, owner in owners.items():
        models[str(owner)].append(model)
    services = {str(key): service for key, service in catalog.services.items()}
    return {
        CLUSTERS: _resources(clusters.clusters(catalog, cache), dict.fromkeys(services, True)),
        ENDPOINTS: _resources(
            clusters.endpoints(catalog),
            {
                name: (clusters.addresses(service), frozenset(service.pods))
                for name, service in services.items()
            },
        ),
        ROUTES: _resources(
            [routes.routes(catalog, cache)],
            {name: (service.config, tuple(models[name])) for name, service in services.items()},
        ),
    }


def _resources(messages: Sequence[message.Message], parts: Mapping[str, object]) -> Resources:
    items = []
    digest = hashlib.sha256()
    for each in messages:
        item = any_pb2.Any()
        item.Pack(each, deterministic=True)
        items.append(item)
        digest.update(item.value)
    return Resources(digest.hexdigest()[:16], items, parts)
