"""NetworkPolicy NAME: requests come through the gateway, so that nobody goes round its limits."""

from __future__ import annotations

from headrace_operator import names
from headrace_operator.api import LLMService
from headrace_operator.api.bodies import JsonObject
from headrace_operator.desired.manifest import Manifest, manifest
from headrace_operator.settings import Settings


def network_policy(service: LLMService, settings: Settings) -> Manifest:
    """Open engine and sidecar ports to Headrace's own pods; the sidecar's also to all, for metrics scrapers.

    What the sidecar's port answers to others is load and status, so reading it is harmless; of single
    requests it tells only whoever connects from inside the pod. What the pods themselves reach (hub, DNS) is
    not restricted.
    """
    headrace = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": settings.system_namespace}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "headrace"}},
    }
    return manifest(
        service,
        "networking.k8s.io/v1",
        "NetworkPolicy",
        service.key.name,
        spec={
            "podSelector": {"matchLabels": names.pod_labels(service.key)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [headrace], "ports": [_tcp(names.HTTP_PORT)]},
                {"from": [{"namespaceSelector": {}}], "ports": [_tcp(names.SIDECAR_PORT)]},
            ],
        },
    )


def _tcp(port: int) -> JsonObject:
    return {"port": port, "protocol": "TCP"}
