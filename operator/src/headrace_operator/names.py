"""Names that the operator shares with the other parts: labels, annotations, ports, paths, owned objects."""

from __future__ import annotations

from headrace_operator.api import GROUP, KIND, Key, key_of
from headrace_operator.api.bodies import Body

FIELD_MANAGER = "headrace-operator"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "headrace"
SELECTOR = f"{MANAGED_BY}={MANAGER}"  # of what the operator owns, and its pods
SERVICE_LABEL = f"{GROUP}/service"

# On pods: any change makes the kubelet refresh the policy volume at once instead of within a minute.
POLICY_REFRESH = f"{GROUP}/policy-refresh"
# On every owned object: hash of what the operator applied, so that removed fields are noticed too.
APPLIED_HASH = f"{GROUP}/applied-hash"
# On the Deployment: what its pods were rendered from, by which rendering, with which sidecar image. The first
# is on each pod, too.
INPUTS_HASH = f"{GROUP}/inputs-hash"
INPUTS = f"{GROUP}/inputs"  # what the first is the hash of
TEMPLATE_HASH = f"{GROUP}/template-hash"
RUNTIME = f"{GROUP}/runtime"
# On the Deployment: the template that was ready last, and which inputs were given up for it.
LAST_READY = f"{GROUP}/last-ready"
ROLLED_BACK = f"{GROUP}/rolled-back"

# A readiness gate of pods: whether every Envoy has their address.
ROUTED_GATE = f"{GROUP}/routed"

HTTP_PORT = 8000  # vLLM
SIDECAR_PORT = 9400
ENGINE = "engine"
SIDECAR = "headrace-sidecar"
INSTALL = "headrace-install"
POLICY_FILE = "policy.json"
RESUME_KEY_FILE = "resume-key.json"
PRIVATE_KEY_FILE = "private-key.pem"  # of the gateway's Secret


def labels(key: Key) -> dict[str, str]:
    """Return the labels of everything that belongs to a service."""
    return {
        MANAGED_BY: MANAGER,
        "app.kubernetes.io/name": "llmservice",
        "app.kubernetes.io/instance": key.name,
        SERVICE_LABEL: key.name,
    }


def pod_labels(key: Key) -> dict[str, str]:
    """Return the labels that select a service's pods; a Deployment's selector can never change."""
    return {MANAGED_BY: MANAGER, SERVICE_LABEL: key.name}


def service_key_of(body: Body) -> Key | None:
    """Return the key of the service that an object is, or that its label names; None if there is none."""
    if body["kind"] == KIND:
        return key_of(body)
    metadata = body["metadata"]
    service = (metadata.get("labels") or {}).get(SERVICE_LABEL)
    return Key(metadata["namespace"], service) if service else None


def policy_config_map(key: Key) -> str:
    """Name the ConfigMap with the policy document."""
    return f"{key.name}-policy"


def claim_template(key: Key) -> str:
    """Name the ResourceClaimTemplate with the service's devices."""
    return f"{key.name}-gpu"


def qualified(key: Key) -> str:
    """Name the model as it always works at the gateway."""
    return f"{key.namespace}/{key.name}"
