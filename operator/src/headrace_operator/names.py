"""Names that the operator shares with the other parts: labels, annotations, ports, paths, owned objects."""

from __future__ import annotations

from headrace_operator.api import GROUP, KIND, POOL_KIND, Key, key_of
from headrace_operator.api.bodies import Body

FIELD_MANAGER = "headrace-operator"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "headrace"
SELECTOR = f"{MANAGED_BY}={MANAGER}"  # of what the operator owns, and its pods
SERVICE_LABEL = f"{GROUP}/service"
POOL_LABEL = f"{GROUP}/gpu-pool"
POOL_GROUP_LABEL = f"{GROUP}/gpu-pool-group"

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
# On pods of turn servers: hash of the token that they were started with.
TOKEN_HASH = f"{GROUP}/token-hash"

# A readiness gate of pods: whether every Envoy has their address.
ROUTED_GATE = f"{GROUP}/routed"

HTTP_PORT = 8000  # vLLM
SIDECAR_PORT = 9400
TURNS_PORT = 9500
ENGINE = "engine"
SIDECAR = "headrace-sidecar"
INSTALL = "headrace-install"
POLICY_FILE = "policy.json"
RESUME_KEY_FILE = "resume-key.json"
TURN_GROUP_FILE = "turn-group.json"
TOKEN_FILE = "token"  # noqa: S105  (of a group's turn server)
PRIVATE_KEY_FILE = "private-key.pem"  # of the gateway's Secret


def labels(key: Key) -> dict[str, str]:
    """Return the labels of everything that belongs to a service or a pool."""
    return {
        MANAGED_BY: MANAGER,
        "app.kubernetes.io/name": key.kind.lower(),
        "app.kubernetes.io/instance": key.name,
        POOL_LABEL if key.kind == POOL_KIND else SERVICE_LABEL: key.name,
    }


def pod_labels(key: Key) -> dict[str, str]:
    """Return the labels that select a service's pods; a Deployment's selector can never change."""
    return {MANAGED_BY: MANAGER, SERVICE_LABEL: key.name}


def owner_key_of(body: Body) -> Key | None:
    """Return the key of the service or pool that an object is, or that its label names; None if of none."""
    if body["kind"] in {KIND, POOL_KIND}:
        return key_of(body)
    metadata = body["metadata"]
    labels = metadata.get("labels") or {}
    if service := labels.get(SERVICE_LABEL):
        return Key(metadata["namespace"], service)
    pool = labels.get(POOL_LABEL)
    return Key(metadata["namespace"], pool, POOL_KIND) if pool else None


def policy_config_map(key: Key) -> str:
    """Name the ConfigMap with the policy document."""
    return f"{key.name}-policy"


def claim_template(key: Key) -> str:
    """Name the ResourceClaimTemplate with the service's devices."""
    return f"{key.name}-gpu"


def group_claim(pool: Key, group: str, digest: str) -> str:
    """Name the ResourceClaim with the devices of a group; `digest`: hash of what it asks for."""
    return f"{pool.name}-{group}-gpu-{digest[:8]}"


def turn_server(pool: Key, group: str) -> str:
    """Name the objects of a group's turn server."""
    return f"{pool.name}-{group}-turns"


def turn_server_labels(pool: Key, group: str) -> dict[str, str]:
    """Return the labels that select the pod of a group's turn server."""
    return {MANAGED_BY: MANAGER, POOL_LABEL: pool.name, POOL_GROUP_LABEL: group}


def qualified(key: Key) -> str:
    """Name the model as it always works at the gateway."""
    return f"{key.namespace}/{key.name}"
