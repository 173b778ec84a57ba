"""The status of a service: what is observed, in conditions that tell a user what to do. Pure.

Everything but `Accepted` is judged by what is live (Deployment, policy ConfigMap, pods, sidecars' reports),
so it stays true while a wrong spec waits for its correction and the last good one keeps running. Such a
condition names the generation that was carried out last: who waits for a change is not told of an older one.
Texts change when something happens, not as time goes by.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from headrace_operator import names
from headrace_operator.api import (
    ROUTE_KIND,
    Condition,
    Key,
    PodReason,
    PolicyStatus,
    Reason,
    ServiceStatus,
    StatusCondition,
)
from headrace_operator.desired import models_of, reserved_of
from headrace_operator.desired.history import recorded, rolled_back
from headrace_operator.errors import RefusedError
from headrace_operator.observe import Observed, Pod, Raw, Report
from headrace_operator.policy_status import (
    Verdict,
    gave_up,
    policy_applied,
    policy_in_force,
    policy_status,
    unsupported,
)
from headrace_operator.problems import Problem, log_of
from headrace_operator.rollout import deployment_condition, stuck
from headrace_operator.routing import routing_ready

# Conditions about what the operator makes of the spec, not about what it has made.
_OF_THIS_PASS = {Condition.ACCEPTED, Condition.DEGRADED}

_REFUSED = "the spec as it is now is refused, see Accepted"
_COMING = "the Deployment is being created"

_HUNG = "requests are running and no step is made: delete the pod if it stays so, and look at its devices"

_STATES = {True: "True", False: "False", None: "Unknown"}
_IMPAIRING = {PodReason.CRASHING, PodReason.NOT_RESPONDING}


class CarriedOut(Enum):
    """How much of a generation was carried out."""

    NOTHING = "Nothing"
    LIVE = "Live"  # all that needs no other pods: replicas, policy, targets, routing
    ALL = "All"


@dataclass(frozen=True, slots=True)
class Subject:
    """The service whose status is told, as far as it is known when its spec is wrong."""

    key: Key
    generation: int
    desired: int  # replicas that the spec asks for
    paused: bool
    carried_out: CarriedOut
    previous: Mapping[str, Any]  # the status that was written last
    judged: bool = True  # whether it is known if the spec is accepted


def status(
    subject: Subject,
    observed: Observed,
    refused: RefusedError | None,
    failure: str,
    *,
    gateway: str,
    now: str,
) -> ServiceStatus:
    """The status at `now` (RFC 3339, UTC); `failure` is what went wrong in this reconcile, or empty."""
    live = observed.deployment(subject.key.name)
    document = policy_in_force(subject.key, observed)
    route = observed.objects.get((ROUTE_KIND, subject.key.name))
    routed = route is not None
    granted = (*models_of(route), *reserved_of(route)) if route else subject.previous.get("models", ())
    verdicts = {
        Condition.ACCEPTED: _accepted(refused, live, subject.carried_out),
        Condition.READY: _ready(live, observed, refused),
        Condition.PROGRESSING: _progressing(live, observed, refused, failure, paused=subject.paused),
        Condition.POLICY_APPLIED: policy_applied(document, observed),
        Condition.ROUTING_READY: routing_ready(subject.key, observed),
        Condition.DEGRADED: _degraded(live, observed, refused, failure, now),
    }
    if not subject.judged:
        verdicts |= _verdicts_before(subject, {Condition.ACCEPTED})
    policy = policy_status(document, observed)
    if policy and _unasked(subject, policy, observed):
        before = subject.previous["policy"]
        told = {"applied_replicas": before.get("appliedReplicas", 0), "in_force": before.get("inForce")}
        policy = policy.model_copy(update=told)
        # Not of `Degraded`, if what is seen now says that it holds.
        degraded = {Condition.DEGRADED} if verdicts[Condition.DEGRADED].holds is True else set()
        verdicts |= _verdicts_before(subject, {Condition.POLICY_APPLIED, Condition.DEGRADED} - degraded)
    return ServiceStatus(
        observed_generation=subject.generation,
        url=f"{gateway}/{subject.key.namespace}/{subject.key.name}/v1" if routed else None,
        desired_replicas=subject.desired,
        replicas=len(observed.pods),
        ready_replicas=len(observed.ready),
        selector=",".join(f"{key}={value}" for key, value in names.pod_labels(subject.key).items()),
        runtime_version=recorded(live, names.RUNTIME),
        models=tuple(granted),
        policy=policy,
        conditions=tuple(_condition(kind, verdict, subject, now) for kind, verdict in verdicts.items()),
    )


def untold_in(observed: Observed, now: str) -> float | None:
    """Seconds until something ceases to be worth telling; None: nothing will."""
    waits = [pod.crash_told_until - _seconds(now) for pod in observed.ready if _crashed_lately(pod, now)]
    return min(waits, default=None)


def _crashed_lately(pod: Pod, now: str) -> bool:
    return _seconds(now) < pod.crash_told_until


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _accepted(refused: RefusedError | None, live: Raw | None, carried_out: CarriedOut) -> Verdict:
    if refused is None:
        return Verdict(True, Reason.VALID, "the spec is valid")
    kept = "Running pods keep the last accepted spec."
    if live is None:
        kept = "Nothing runs."
    elif carried_out is CarriedOut.LIVE:
        kept = (
            "Running pods stay as they are made; replicas, policy, targets and routing are carried out, but "
            "for what this is about."
        )
    return Verdict(False, refused.reason, f"{refused}. {kept}")


def _ready(live: Raw | None, observed: Observed, refused: RefusedError | None) -> Verdict:
    if live is None:
        if refused:
            return Verdict(False, Reason.NOT_ACCEPTED, str(refused))
        return Verdict(False, PodReason.STARTING, _COMING)
    wanted, ready = live["spec"]["replicas"], len(observed.ready)
    if wanted == 0:
        fix = "set it to 1 or more to serve requests"
        return Verdict(False, Reason.SCALED_TO_ZERO, f"spec.replicas is 0: {fix}")
    count = f"{ready} of {wanted} replicas ready"
    if ready >= wanted:
        return Verdict(True, Reason.ALL_REPLICAS_READY, f"{count}; {_REFUSED}" if refused else count)
    reason, message = _missing(live, observed)
    return Verdict(False, reason, f"{count}; {message}")


def _missing(live: Raw, observed: Observed) -> tuple[str, str]:
    """Why replicas are missing: the gravest reason that any of them has."""
    refusal = deployment_condition(live, "ReplicaFailure")
    if refusal.get("status") == "True":
        words = refusal.get("message", "")
        return Reason.PODS_NOT_CREATED, f"{words}; change the spec, or have that quota or policy changed"
    failed = f"; {observed.failed}" if observed.failed else ""
    worst = _gravest(observed.pods)
    if worst is None:
        return PodReason.STARTING, f"pods are being created{failed}"
    return worst[1].reason, f"{_told(worst)}{failed}"


def _gravest(pods: Iterable[Pod]) -> tuple[str, Problem] | None:
    """The gravest problem of any of these pods, and whose it is."""
    problems = [(pod.name, pod.problem) for pod in pods if pod.problem]
    return min(problems, key=lambda item: (item[1].reason.rank, item[0]), default=None)


def _told(worst: tuple[str, Problem]) -> str:
    return f"{worst[0]}: {worst[1].advice}"


def _of_new_pods(live: Raw, observed: Observed) -> tuple[str, Problem] | None:
    """The gravest problem among the pods that a rollout brings."""
    inputs = recorded(live, names.INPUTS_HASH)
    return _gravest(pod for pod in observed.pods if pod.inputs == inputs)


def _progressing(
    live: Raw | None, observed: Observed, refused: RefusedError | None, failure: str, *, paused: bool
) -> Verdict:
    if paused:
        return Verdict(False, Reason.PAUSED, "the annotation headrace.dev/paused is set: nothing is changed")
    if live is not None and stuck(live):
        return Verdict(False, Reason.PROGRESS_DEADLINE_EXCEEDED, _late(live, observed))
    under_way = None if live is None else _rolling_out(live, observed) or _filling_up(live, observed)
    if under_way:
        return under_way
    if refused:
        return Verdict(
            False,
            Reason.NOT_ACCEPTED,
            f"{_REFUSED}; {'all replicas are as before' if live else 'nothing runs'}",
        )
    if failure:
        return Verdict(False, Reason.RECONCILE_ERROR, "the spec could not be carried out, see Degraded")
    if live is None:
        return Verdict(True, PodReason.STARTING, _COMING)
    if rolled_back(live):
        return Verdict(False, Reason.ROLLED_BACK, "all replicas are as before the spec was changed")
    return Verdict(False, Reason.SETTLED, "all replicas are as the spec asks")


def _late(live: Raw, observed: Observed) -> str:
    """Why a rollout came to a halt, and what lets it go on."""
    late = "a new pod did not become ready in time"
    worst = _of_new_pods(live, observed) or _gravest(observed.pods)
    if worst is None:
        return late
    fix = "; add nodes, or let more replicas be away at a time: spec.disruption.maxUnavailable"
    return f"{late}: {_told(worst)}{fix if worst[1].reason == PodReason.UNSCHEDULABLE else ''}"


def _rolling_out(live: Raw, observed: Observed) -> Verdict | None:
    """With what keeps its pods: where others serve meanwhile, Ready does not tell."""
    deployed = live.get("status", {})
    if deployed.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return Verdict(True, Reason.ROLLING_OUT, "the Deployment was changed")
    there, updated = deployed.get("replicas", 0), deployed.get("updatedReplicas", 0)
    if updated >= there:
        return None
    worst = _of_new_pods(live, observed)
    message = f"{updated} of {there} pods have the current template"
    return Verdict(True, Reason.ROLLING_OUT, f"{message}; {_told(worst)}" if worst else message)


def _filling_up(live: Raw, observed: Observed) -> Verdict | None:
    wanted = live["spec"]["replicas"]
    if len(observed.pods) != wanted:
        return Verdict(True, Reason.SCALING, f"from {len(observed.pods)} to {wanted} replicas")
    # The Deployment's count comes after the pods' own; the template is kept as ready only by that.
    ready = min(len(observed.ready), live.get("status", {}).get("readyReplicas", 0))
    if ready < wanted:
        return Verdict(True, PodReason.STARTING, f"{ready} of {wanted} replicas ready")
    return None


def _degraded(
    live: Raw | None, observed: Observed, refused: RefusedError | None, failure: str, now: str
) -> Verdict:
    if failure:
        message = f"the spec could not be carried out, which is tried again by itself: {failure}"
        return Verdict(True, Reason.RECONCILE_ERROR, message)
    for reason, message in _impairments(live, observed, now):
        return Verdict(True, reason, message)
    return Verdict(
        False, Reason.AS_EXPECTED, f"what runs is well; {_REFUSED}" if refused else "nothing is wrong"
    )


def _impairments(live: Raw | None, observed: Observed, now: str) -> Iterator[tuple[str, str]]:
    """What impairs the service, gravest first."""
    given_up = rolled_back(live)
    if given_up:
        yield Reason.ROLLED_BACK, given_up.message
    if live is not None and stuck(live):
        yield Reason.PROGRESS_DEADLINE_EXCEEDED, _late(live, observed)
    for pod in observed.pods:
        if pod.problem and pod.problem.reason in _IMPAIRING:
            yield pod.problem.reason, _told((pod.name, pod.problem))
    yield from _troubles_of_engines(observed)
    for pod in observed.ready:
        if pod.crash and _crashed_lately(pod, now):
            log = log_of(pod.name, pod.crash.container, ended=True)
            yield Reason.CRASHED, f"{pod.name}: {pod.crash}; it serves again; {log}"


def _troubles_of_engines(observed: Observed) -> Iterator[tuple[str, str]]:
    """What ready engines say of themselves."""
    for pod in observed.ready:
        report = observed.report(pod).status
        if report is None:
            continue
        if report.engine.state == "Hung":
            yield Reason.ENGINE_HUNG, f"{pod.name}: {_HUNG}"
        if report.engine.state == "Stock":
            yield Reason.ENGINE_VERSION_NOT_SUPPORTED, f"{pod.name}: {unsupported(report.engine)}"
        if report.policy.disabled:
            yield Reason.POLICY_FAILED, f"{pod.name}: {gave_up(report.policy)}"
        if report.prediction.predictor == "GivenUp":
            failing = "spec.prediction.predictor keeps failing, and the mean of recent outputs stands in"
            yield Reason.PREDICTOR_FAILED, f"{pod.name}: {failing}; {log_of(pod.name, names.ENGINE)}"


def _unasked(subject: Subject, policy: PolicyStatus, observed: Observed) -> bool:
    """Whether a sidecar has neither answered nor failed to yet, of what was told of: policy and ready pods.

    So it is for seconds after an operator begins to lead. What was told of engines then stays: to call every
    policy unconfirmed and then confirmed would be two writes and two events for each service. A pod more is
    news, and not confirmed.
    """
    before: Raw = subject.previous.get("policy") or {}
    told = before.get("hash"), subject.previous.get("readyReplicas")
    if told != (policy.hash, len(observed.ready)):
        return False
    return any(observed.report(pod) == Report() for pod in observed.ready)


def _verdicts_before(subject: Subject, kinds: Collection[Condition]) -> dict[Condition, Verdict]:
    """What was told last of these."""
    holds = {state: holds for holds, state in _STATES.items()}
    return {
        Condition(told["type"]): Verdict(holds[told["status"]], told["reason"], told.get("message", ""))
        for told in subject.previous.get("conditions") or ()
        if told["type"] in kinds
    }


def _condition(kind: Condition, verdict: Verdict, subject: Subject, now: str) -> StatusCondition:
    """The condition as written; its transition time moves only with its status."""
    state = _STATES[verdict.holds]
    before: Raw = next((c for c in subject.previous.get("conditions") or [] if c["type"] == kind), {})
    since = before["lastTransitionTime"] if before.get("status") == state else now
    current = subject.carried_out is CarriedOut.ALL or kind in _OF_THIS_PASS
    current &= subject.judged or kind != Condition.ACCEPTED or not before
    current |= subject.carried_out is CarriedOut.LIVE and kind == Condition.POLICY_APPLIED
    return StatusCondition(
        type=kind,
        status=state,  # type: ignore[arg-type]  # one of the three
        reason=verdict.reason,
        message=verdict.message[:4096],
        observed_generation=subject.generation if current else before.get("observedGeneration", 0),
        last_transition_time=since,
    )
