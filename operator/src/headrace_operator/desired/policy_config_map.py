"""ConfigMap NAME-policy: the policy document, mounted into the sidecar."""

from __future__ import annotations

from headrace_engine.contracts import dumps
from headrace_operator import names
from headrace_operator.api import LLMService, policy_document
from headrace_operator.desired.manifest import Manifest, manifest


def policy_config_map(service: LLMService) -> Manifest:
    """Make the ConfigMap that engines schedule by; a change reaches them without a new pod template."""
    return manifest(
        service,
        "v1",
        "ConfigMap",
        names.policy_config_map(service.key),
        data={names.POLICY_FILE: dumps(policy_document(service))},
    )
