"""Service NAME: the replicas' addresses, which the gateway follows through EndpointSlices."""

from __future__ import annotations

from headrace_operator import names
from headrace_operator.api import LLMService
from headrace_operator.desired.manifest import Manifest, manifest


def cluster_service(service: LLMService) -> Manifest:
    """Make a ClusterIP Service; its labels are copied to its EndpointSlices, where the picker finds them."""
    ports = (("http", names.HTTP_PORT), ("sidecar", names.SIDECAR_PORT))
    return manifest(
        service,
        "v1",
        "Service",
        service.key.name,
        spec={
            "type": "ClusterIP",
            "selector": names.pod_labels(service.key),
            "ports": [
                {"name": name, "port": port, "targetPort": name, "protocol": "TCP"} for name, port in ports
            ],
        },
    )
