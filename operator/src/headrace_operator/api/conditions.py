"""Condition types and reasons: the words in which the operator says what is going on."""

from __future__ import annotations

from enum import Enum, StrEnum, auto


class Condition(StrEnum):
    """Types of conditions, in the order in which they are shown."""

    ACCEPTED = "Accepted"
    READY = "Ready"
    PLACED = "Placed"  # of a GPUPool
    PLANNED = "Planned"  # of a GPUPool
    AS_PLANNED = "AsPlanned"  # of a GPUPool
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    POLICY_APPLIED = "PolicyApplied"
    ROUTING_READY = "RoutingReady"
    DEGRADED = "Degraded"


class Reason(StrEnum):
    """Why a condition is as it is; one word that `kubectl get` shows and alerts match."""

    # Accepted
    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    HOST_PATH_NOT_ALLOWED = "HostPathNotAllowed"
    SERVICE_ACCOUNT_NOT_ALLOWED = "ServiceAccountNotAllowed"
    API_KEYS_REQUIRED = "ApiKeysRequired"
    MODEL_NAME_CONFLICT = "ModelNameConflict"
    OBJECT_NAME_TAKEN = "ObjectNameTaken"
    MEMBER_TAKEN = "MemberTaken"  # of a GPUPool
    MEMBERS_DIFFER = "MembersDiffer"  # of a GPUPool: in the devices that they ask for
    MEMORY_OVERCOMMITTED = "MemoryOvercommitted"  # of devices that a group shares
    ADMISSION_DENIED = "AdmissionDenied"  # by a policy, a webhook or a quota of the cluster

    # Ready, beside the reasons of pods
    ALL_REPLICAS_READY = "AllReplicasReady"
    SCALED_TO_ZERO = "ScaledToZero"
    WAITING_TO_MOVE = "WaitingToMove"  # its GPUPool moves another first
    NOT_ACCEPTED = "NotAccepted"
    PODS_NOT_CREATED = "PodsNotCreated"  # quota, admission

    # Placed, of a GPUPool
    DEVICES_SHARED = "DevicesShared"
    NO_CLAIM = "NoClaim"  # members that ask for their devices otherwise, or for none
    DEVICES_NOT_ALLOCATED = "DevicesNotAllocated"
    CLAIM_DELETED = "ClaimDeleted"  # by somebody, or as its node is dead, while pods have its devices

    # Planned, of a GPUPool
    PLAN_MADE = "PlanMade"
    PLANNING = "Planning"
    NO_TRAFFIC = "NoTraffic"  # nobody asked the services anything
    NOT_ESTIMABLE = "NotEstimable"  # no cost model, or one that does not fit
    NO_ROOM = "NoRoom"
    PLAN_FAILED = "PlanFailed"

    # AsPlanned, of a GPUPool
    NOTHING_TO_MOVE = "NothingToMove"
    MOVING = "Moving"
    MOVE_BLOCKED = "MoveBlocked"  # no service that is left has room where it is to go
    MOVE_FAILED = "MoveFailed"  # engines did not start where they were moved to

    # Ready, of a GPUPool
    ALL_GROUPS_READY = "AllGroupsReady"
    MEMBER_NOT_FOUND = "MemberNotFound"
    TURN_SERVER_NOT_READY = "TurnServerNotReady"

    # Reconciling and Stalled
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
    NOT_REPORTED = "NotReported"  # no picker has said anything yet
    ROUTE_REFUSED = "RouteRefused"  # by the picker
    ENVOY_REFUSED = "EnvoyRefused"
    NO_ENVOY = "NoEnvoy"
    ENDPOINTS_MISSING = "EndpointsMissing"

    # Degraded, beside the reasons of pods
    AS_EXPECTED = "AsExpected"
    CRASHED = "Crashed"  # an engine ended lately, and serves again
    ENGINE_HUNG = "EngineHung"
    RECONCILE_ERROR = "ReconcileError"
    ROLLED_BACK = "RolledBack"  # a rollout failed; the template that was ready before it runs again
    WITHOUT_TURNS = "WithoutTurns"  # an engine can't reach its group's turn server
    PREDICTOR_FAILED = "PredictorFailed"  # the mean of recent outputs stands in


class Severity(Enum):
    """How much is wrong with a pod that does not serve."""

    EXPECTED = auto()  # nothing: it is on its way
    BLOCKING = auto()  # it cannot serve until something changes
    IMPAIRING = auto()  # it served or ran: the service is worse off than it was


class PodReason(StrEnum):
    """Why a pod does not serve, gravest first, each with the sentence that tells it and how much is wrong.

    Of a service's pods, the one whose reason stands first here is the one that its Ready condition tells of.
    """

    MODEL_CLAIM_NOT_FOUND = (
        "ModelClaimNotFound",
        "{field} names claim {claim}, which does not exist: {advice}",
    )
    VOLUME_CLAIM_NOT_FOUND = (
        "VolumeClaimNotFound",
        "{field} names claim {claim}, which does not exist: {advice}",
    )
    TOKEN_SECRET_NOT_FOUND = (
        "TokenSecretNotFound",
        "spec.model.tokenSecretRef: {words}: create the Secret with that key, or change the field",
    )
    CONFIGURATION_NOT_FOUND = (
        "ConfigurationNotFound",
        "spec.engine.env or .envFrom: {words}: create it with that key, or change the field",
    )
    CONTAINER_NOT_CREATED = (
        "ContainerNotCreated",
        "container {container}: {words}; check spec.podTemplate.securityContext and .volumeMounts",
    )
    IMAGE_PULL_FAILED = (
        "ImagePullFailed",
        "container {container}: {words}; check {fields}",
    )
    CRASHING = "Crashing", "{crash}", Severity.IMPAIRING
    CLAIM_NOT_BOUND = (
        "ClaimNotBound",
        "it waits for a volume: {words}; its claims are {claims}: `kubectl describe pvc` says more",
    )
    UNSCHEDULABLE = (
        "Unschedulable",
        "{words}; what it asks of a node is in spec.accelerator and spec.podTemplate",
    )
    NOT_ROUTED = (
        "NotRouted",
        "it could serve, but not every Envoy has its address: if so for long, see picker and gateway pods",
    )
    NOT_RESPONDING = (
        "NotResponding",
        "vLLM stopped answering its health check: delete the pod if it stays so",
        Severity.IMPAIRING,
    )
    DOWNLOADING = "Downloading", "vLLM is downloading the model", Severity.EXPECTED
    LOADING = "Loading", "vLLM is loading the model", Severity.EXPECTED
    COMPILING = "Compiling", "vLLM has the weights, and compiles and warms up", Severity.EXPECTED
    STARTING = "Starting", "{step}", Severity.EXPECTED

    def __new__(cls, word: str, text: str, severity: Severity = Severity.BLOCKING) -> PodReason:
        """Make the word, with its text, its severity and its place in the order."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.text = text
        member.severity = severity
        member.rank = len(cls.__members__)
        return member

    text: str
    severity: Severity
    rank: int
