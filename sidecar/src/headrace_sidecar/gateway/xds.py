"""The whole dynamic configuration of Envoy for one catalog."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf import any_pb2, message

from headrace_sidecar.gateway import clusters, routes
from headrace_sidecar.gateway.catalog import Catalog
from headrace_sidecar.gateway.kept import next_catalog

CLUSTERS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"

# A route may name only clusters that Envoy has, and a cluster waits for its endpoints: so in this order.
TYPES = (CLUSTERS, ENDPOINTS, ROUTES)


@dataclass(frozen=True, slots=True)
class Resources:
    """All resources of one type; `version` is their hash, so a restarted picker says what it said before."""

    version: str
    items: Sequence[any_pb2.Any]


Snapshot = Mapping[str, Resources]


def snapshot(catalog: Catalog) -> Snapshot:
    """Everything Envoy asks for, by type URL."""
    next_catalog()
    return {
        CLUSTERS: _resources(clusters.clusters(catalog)),
        ENDPOINTS: _resources(clusters.endpoints(catalog)),
        ROUTES: _resources([routes.routes(catalog)]),
    }


def _resources(messages: Sequence[message.Message]) -> Resources:
    items = []
    digest = hashlib.sha256()
    for each in messages:
        item = any_pb2.Any()
        item.Pack(each, deterministic=True)
        items.append(item)
        digest.update(item.value)
    return Resources(digest.hexdigest()[:16], items)
