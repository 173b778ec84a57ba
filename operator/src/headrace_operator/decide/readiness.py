"""The conditions Ready, Reconciling and Stalled: how many replicas serve, and how a change goes. Pure.

`Reconciling` and `Stalled` are those of kstatus, by which Helm, Flux and others tell when a change is over.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace_operator import names
from headrace_operator.api import (
    PodReason,
    Reason,
)
from headrace_operator.api.bodies import Body
from headrace_operator.decide.condition_state import ConditionState
from headrace_operator.decide.observation import Observation, Pod
from headrace_operator.decide.pod_problems import Problem
from headrace_operator.decide.rollout import deployment_condition, is_stuck
from headrace_operator.desired.history import recorded_annotation, rolled_back
from headrace_operator.errors import RefusedError

REFUSED = "the spec as it is now is refused, see Accepted"
_COMING = "the Deployment is being created"


def ready_state(
    live: Body | None, observed: Observation, refused: RefusedError | None, *, waits_to_move: bool = False
) -> ConditionState:
    """Decide whether all replicas serve; if not, the gravest problem of a pod gives reason and message.

    `waits_to_move`: it has no replicas because its pool is to move others first.
    """
    if live is None:
        if refused:
            return ConditionState(False, Reason.NOT_ACCEPTED, str(refused))
        return ConditionState(False, PodReason.STARTING, _COMING)
    wanted, ready = live["spec"]["replicas"], len(observed.ready)
    if wanted == 0 and waits_to_move:
        return ConditionState(
            False,
            Reason.WAITING_TO_MOVE,
            "its GPUPool moves another service to where its engines were, and starts them again after that: "
            "see the condition AsPlanned of the pool",
        )
    if wanted == 0:
        fix = "set it to 1 or more to serve requests"
        return ConditionState(False, Reason.SCALED_TO_ZERO, f"spec.replicas is 0: {fix}")
    count = f"{ready} of {wanted} replicas ready"
    if ready >= wanted:
        return ConditionState(True, Reason.ALL_REPLICAS_READY, f"{count}; {REFUSED}" if refused else count)
    reason, message = _missing(live, observed)
    return ConditionState(False, reason, f"{count}; {message}")


def _missing(live: Body, observed: Observation) -> tuple[str, str]:
    """Explain why replicas are missing: the gravest reason that any of them has."""
    refusal = deployment_condition(live, "ReplicaFailure")
    if refusal.get("status") == "True":
        words = refusal.get("message", "")
        return Reason.PODS_NOT_CREATED, f"{words}; change the spec, or have that quota or policy changed"
    failed = f"; {observed.failed}" if observed.failed else ""
    worst = _gravest(observed.pods)
    if worst is None:
        return PodReason.STARTING, f"pods are being created{failed}"
    return worst[1].reason, f"{describe_pod_problem(worst)}{failed}"


def reconciling_state(
    live: Body | None,
    observed: Observation,
    refused: RefusedError | None,
    failure: str,
    *,
    paused: bool,
    behind: bool,
) -> ConditionState:
    """Decide whether what runs is still to become what the spec asks, and why not if not.

    `behind`: the spec has changed since it was carried out last.
    """
    if paused:
        what = "the change of the spec waits" if behind else "nothing is changed"
        return ConditionState(behind, Reason.PAUSED, f"the annotation headrace.dev/paused is set: {what}")
    if live is not None and is_stuck(live):
        return ConditionState(False, Reason.PROGRESS_DEADLINE_EXCEEDED, describe_late_rollout(live, observed))
    under_way = None if live is None else _rolling_out(live, observed) or _filling_up(live, observed)
    if under_way:
        return under_way
    if refused:
        return ConditionState(
            False,
            Reason.NOT_ACCEPTED,
            f"{REFUSED}; {'all replicas are as before' if live else 'nothing runs'}",
        )
    if failure:
        return ConditionState(
            True, Reason.RECONCILE_ERROR, "the spec could not be carried out yet, see Degraded"
        )
    if live is None:
        return ConditionState(True, PodReason.STARTING, _COMING)
    if rolled_back(live):
        return ConditionState(False, Reason.ROLLED_BACK, "all replicas are as before the spec was changed")
    return ConditionState(False, Reason.SETTLED, "all replicas are as the spec asks")


def stalled_state(live: Body | None, observed: Observation, refused: RefusedError | None) -> ConditionState:
    """Decide whether the spec is not carried out before somebody changes something.

    `live`: the Deployment; None before there is one, and of what has none, such as a GPUPool.
    """
    if refused:
        return ConditionState(True, refused.reason, str(refused))
    if given_up := rolled_back(live):
        return ConditionState(True, Reason.ROLLED_BACK, given_up.message)
    if live is not None and is_stuck(live):
        return ConditionState(True, Reason.PROGRESS_DEADLINE_EXCEEDED, describe_late_rollout(live, observed))
    return ConditionState(False, Reason.AS_EXPECTED, "nothing keeps the spec from being carried out")


def describe_late_rollout(live: Body, observed: Observation) -> str:
    """Explain why a rollout came to a halt, and what lets it go on."""
    late = "a new pod did not become ready in time"
    worst = _of_new_pods(live, observed) or _gravest(observed.pods)
    if worst is None:
        return late
    fix = "; add nodes, or let more replicas be away at a time: spec.disruption.maxUnavailable"
    return f"{late}: {describe_pod_problem(worst)}{fix if worst[1].reason == PodReason.UNSCHEDULABLE else ''}"


def _rolling_out(live: Body, observed: Observation) -> ConditionState | None:
    """Tell what keeps the pods of a rollout; where others serve meanwhile, Ready does not tell."""
    deployed = live.get("status", {})
    if deployed.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return ConditionState(True, Reason.ROLLING_OUT, "the Deployment was changed")
    there, updated = deployed.get("replicas", 0), deployed.get("updatedReplicas", 0)
    if updated >= there:
        return None
    worst = _of_new_pods(live, observed)
    message = f"{updated} of {there} pods have the current template"
    return ConditionState(
        True, Reason.ROLLING_OUT, f"{message}; {describe_pod_problem(worst)}" if worst else message
    )


def _filling_up(live: Body, observed: Observation) -> ConditionState | None:
    wanted = live["spec"]["replicas"]
    if len(observed.pods) != wanted:
        return ConditionState(True, Reason.SCALING, f"from {len(observed.pods)} to {wanted} replicas")
    # The Deployment's count comes after the pods' own; the template is kept as ready only by that.
    ready = min(len(observed.ready), live.get("status", {}).get("readyReplicas", 0))
    if ready < wanted:
        return ConditionState(True, PodReason.STARTING, f"{ready} of {wanted} replicas ready")
    return None


def _gravest(pods: Iterable[Pod]) -> tuple[str, Problem] | None:
    """Return the gravest problem of any of these pods, and whose it is."""
    problems = [(pod.name, pod.problem) for pod in pods if pod.problem]
    return min(problems, key=lambda item: (item[1].reason.rank, item[0]), default=None)


def describe_pod_problem(worst: tuple[str, Problem]) -> str:
    """Name the pod, its problem and what to do."""
    return f"{worst[0]}: {worst[1].advice}"


def _of_new_pods(live: Body, observed: Observation) -> tuple[str, Problem] | None:
    """Return the gravest problem among the pods that a rollout brings."""
    inputs = recorded_annotation(live, names.INPUTS_HASH)
    return _gravest(pod for pod in observed.pods if pod.inputs == inputs)
