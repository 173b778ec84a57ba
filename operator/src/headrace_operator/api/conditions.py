"""Condition types and reasons: the words in which the operator says what is going on."""

from __future__ import annotations

from enum import StrEnum


class Condition(StrEnum):
    """Types of conditions, in the order in which they are shown."""

    ACCEPTED = "Accepted"
    READY = "Ready"
    PROGRESSING = "Progressing"
    POLICY_APPLIED = "PolicyApplied"
    ROUTING_READY = "RoutingReady"
    DEGRADED = "Degraded"


class Reason(StrEnum):
    """Why a condition is as it is; one word that `kubectl get` shows and alerts match."""

    # Accepted
    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    HOST_PATH_NOT_ALLOWED = "HostPathNotAllowed"
    MODEL_NAME_CONFLICT = "ModelNameConflict"
    OBJECT_NAME_TAKEN = "ObjectNameTaken"

    # Ready; the same words say why Degraded is true
    ALL_REPLICAS_READY = "AllReplicasReady"
    SCALED_TO_ZERO = "ScaledToZero"
    NOT_ACCEPTED = "NotAccepted"
    PODS_NOT_CREATED = "PodsNotCreated"  # quota, admission
    UNSCHEDULABLE = "Unschedulable"  # no node has the devices, memory or CPU
    MODEL_CLAIM_NOT_FOUND = "ModelClaimNotFound"
    VOLUME_CLAIM_NOT_FOUND = "VolumeClaimNotFound"
    TOKEN_SECRET_NOT_FOUND = "TokenSecretNotFound"  # noqa: S105 the name of a reason
    CONFIGURATION_NOT_FOUND = "ConfigurationNotFound"  # a Secret or ConfigMap of env
    CONTAINER_NOT_CREATED = "ContainerNotCreated"  # the security context or a mount does not suit the image
    IMAGE_PULL_FAILED = "ImagePullFailed"
    STARTING = "Starting"  # scheduled, volumes mounted, containers made
    LOADING = "Loading"  # vLLM runs and loads the model
    CRASHING = "Crashing"
    NOT_RESPONDING = "NotResponding"  # vLLM was up and fails its health check
    ENGINE_HUNG = "EngineHung"

    # Progressing
    SETTLED = "Settled"
    ROLLING_OUT = "RollingOut"
    SCALING = "Scaling"
    PAUSED = "Paused"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"

    # PolicyApplied
    APPLIED = "Applied"
    PENDING = "Pending"
    NO_READY_REPLICAS = "NoReadyReplicas"
    POLICY_REJECTED = "PolicyRejected"
    POLICY_FAILED = "PolicyFailed"  # the engine fell back to FCFS for good
    SIDECAR_UNREACHABLE = "SidecarUnreachable"
    ENGINE_VERSION_NOT_SUPPORTED = "EngineVersionNotSupported"

    # RoutingReady
    ROUTED = "Routed"

    # Degraded
    AS_EXPECTED = "AsExpected"
    RECONCILE_ERROR = "ReconcileError"
    ROLLED_BACK = "RolledBack"  # a rollout failed; the template that was ready before it runs again
    PREDICTOR_FAILED = "PredictorFailed"  # the mean of recent outputs stands in
