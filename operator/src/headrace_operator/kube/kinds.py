"""The kinds that the operator reads and writes, and how the API server's paths name them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from headrace_operator.api import (
    GROUP,
    KIND,
    PLURAL,
    POOL_KIND,
    POOL_PLURAL,
    ROUTE_KIND,
    ROUTE_PLURAL,
    VERSION,
)


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind at the API server."""

    kind: str
    group: str  # empty: the core group
    version: str
    plural: str

    @property
    def api_version(self) -> str:
        """Group and version, as manifests write them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """Return the URL path of an object, or of a list; without a namespace, of all namespaces.

        Raises ValueError if no object can have this name: some names come from fields that anybody may write.
        """
        if name is not None and (name in {"", ".", ".."} or "/" in name or "%" in name):
            raise ValueError(f"{name!r} is no name of an object")
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{scope}/{self.plural}" + ("" if name is None else f"/{quote(name, safe='')}")


SERVICE = Resource(KIND, GROUP, VERSION, PLURAL)
POOL = Resource(POOL_KIND, GROUP, VERSION, POOL_PLURAL)
OWNERS = (SERVICE, POOL)
ROUTE = Resource(ROUTE_KIND, GROUP, VERSION, ROUTE_PLURAL)
POD = Resource("Pod", "", "v1", "pods")
CLAIM = Resource("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims")
REPLICA_SET = Resource("ReplicaSet", "apps", "v1", "replicasets")
EVENT = Resource("Event", "events.k8s.io", "v1", "events")
SECRET = Resource("Secret", "", "v1", "secrets")
LEASE = Resource("Lease", "coordination.k8s.io", "v1", "leases")
OWNED = (
    Resource("ConfigMap", "", "v1", "configmaps"),
    ROUTE,
    Resource("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies"),
    Resource("Service", "", "v1", "services"),
    Resource("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"),
    Resource("ResourceClaimTemplate", "resource.k8s.io", "v1", "resourceclaimtemplates"),
    Resource("ResourceClaim", "resource.k8s.io", "v1", "resourceclaims"),
    Resource("Deployment", "apps", "v1", "deployments"),
)
WATCHED = (*OWNERS, *OWNED, POD)
_OTHERS = (*OWNERS, POD, CLAIM, REPLICA_SET, EVENT, SECRET, LEASE)
_BY_KIND = {resource.kind: resource for resource in (*_OTHERS, *OWNED)}


def resource(kind: str) -> Resource:
    """Return the resource of a kind that the operator knows."""
    return _BY_KIND[kind]
