"""ResourceClaimTemplate NAME-gpu: the devices of one replica, with dynamic resource allocation."""

from __future__ import annotations

from headrace_operator import names
from headrace_operator.api import LLMService
from headrace_operator.api.engine import Dra
from headrace_operator.desired.manifest import Manifest, manifest

REQUEST = "gpu"


def resource_claim_template(service: LLMService, dra: Dra) -> Manifest:
    """Ask for as many devices of the class as the model is spread over. Its content can never change."""
    request = {
        "name": REQUEST,
        "exactly": {
            "deviceClassName": dra.device_class_name,
            "allocationMode": "ExactCount",
            "count": service.spec.engine.tensor_parallel_size,
            # Also when there are none: a field that is not said is one that the live template may have.
            "selectors": [selector.as_body() for selector in dra.selectors],
        },
    }
    return manifest(
        service,
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
        names.claim_template(service.key),
        spec={"spec": {"devices": {"requests": [request]}}},
    )
