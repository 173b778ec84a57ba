"""The status of a service: what is observed, in conditions that tell a user what to do. Pure.

Everything but `Accepted` follows from what is live (Deployment, policy ConfigMap, pods, sidecars' reports),
so it stays true while a wrong spec waits for its correction and the last good one keeps running. Such a
condition names the generation that was carried out last: who waits for a change is not told of an older one.
Texts change when something happens, not as time goes by.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from headrace_operator import names
from headrace_operator.api import (
    ROUTE_KIND,
    Condition,
    Key,
    PolicyStatus,
    Reason,
    ServiceStatus,
    StatusCondition,
)
from headrace_operator.api.bodies import Body
from headrace_operator.decide.condition_state import (
    STATUSES,
    ConditionState,
    make_condition,
    told_before,
)
from headrace_operator.decide.degradation import degraded_state
from headrace_operator.decide.observation import Observation, SidecarReport
from headrace_operator.decide.policy_status import (
    policy_applied_state,
    policy_in_force,
    policy_status,
)
from headrace_operator.decide.readiness import ready_state, reconciling_state, stalled_state
from headrace_operator.decide.routing_status import routing_ready_state
from headrace_operator.desired import models_of, reserved_of
from headrace_operator.desired.history import recorded_annotation
from headrace_operator.errors import RefusedError

# Conditions about what the operator makes of the spec, not about what it has made.
_OF_SPEC = {Condition.ACCEPTED, Condition.STALLED}
_OF_THIS_PASS = {*_OF_SPEC, Condition.DEGRADED}


class Executed(Enum):
    """How much of a generation was carried out."""

    NOTHING = "Nothing"
    LIVE = "Live"  # all that needs no other pods: replicas, policy, targets, routing
    ALL = "All"


@dataclass(frozen=True, slots=True)
class Subject:
    """The service whose status is told, as far as it is known when its spec is wrong."""

    key: Key
    generation: int
    desired: int  # replicas that there should be
    paused: bool
    executed: Executed
    previous: Body  # the status that was written last
    acceptance_known: bool = True  # whether it is known if the spec is accepted
    waits_to_move: bool = False  # its pool gives it no replicas until others have moved

    @property
    def behind(self) -> bool:
        """Whether the spec has changed since it was carried out last."""
        told = told_before(Condition.READY, self.previous).get("observedGeneration", 0)
        return self.executed is Executed.NOTHING and told < self.generation


def build_status(
    subject: Subject,
    observed: Observation,
    refused: RefusedError | None,
    failure: str,
    *,
    gateway: str,
    now: str,
) -> ServiceStatus:
    """Build the status at `now` (RFC 3339, UTC); `failure` is what went wrong in this reconcile, or empty."""
    live = observed.deployment(subject.key.name)
    document = policy_in_force(subject.key, observed)
    route = observed.objects.get((ROUTE_KIND, subject.key.name))
    routed = route is not None
    granted = (*models_of(route), *reserved_of(route)) if route else subject.previous.get("models", ())
    states = {
        Condition.ACCEPTED: _accepted(refused, live, subject.executed),
        Condition.READY: ready_state(live, observed, refused, waits_to_move=subject.waits_to_move),
        Condition.RECONCILING: reconciling_state(
            live, observed, refused, failure, paused=subject.paused, behind=subject.behind
        ),
        Condition.STALLED: stalled_state(live, observed, refused),
        Condition.POLICY_APPLIED: policy_applied_state(document, observed),
        Condition.ROUTING_READY: routing_ready_state(subject.key, observed),
        Condition.DEGRADED: degraded_state(live, observed, refused, failure, now),
    }
    if not subject.acceptance_known:
        told_of_spec = {Condition.ACCEPTED} if states[Condition.STALLED].holds else _OF_SPEC
        states |= _states_before(subject, told_of_spec)
    policy = policy_status(document, observed)
    if policy and _has_unheard_sidecars(subject, policy, observed):
        before = subject.previous["policy"]
        told = {"applied_replicas": before.get("appliedReplicas", 0), "in_force": before.get("inForce")}
        policy = policy.model_copy(update=told)
        # Not of `Degraded`, if what is seen now says that it holds.
        still_degraded = {Condition.DEGRADED} if states[Condition.DEGRADED].holds is True else set()
        states |= _states_before(subject, {Condition.POLICY_APPLIED, Condition.DEGRADED} - still_degraded)
    return ServiceStatus(
        observed_generation=subject.generation,
        url=f"{gateway}/{subject.key.namespace}/{subject.key.name}/v1" if routed else None,
        desired_replicas=subject.desired,
        replicas=len(observed.pods),
        ready_replicas=len(observed.ready),
        selector=",".join(f"{key}={value}" for key, value in names.pod_labels(subject.key).items()),
        runtime_version=recorded_annotation(live, names.RUNTIME),
        models=tuple(granted),
        policy=policy,
        conditions=tuple(_condition(kind, state, subject, now) for kind, state in states.items()),
    )


def _accepted(refused: RefusedError | None, live: Body | None, executed: Executed) -> ConditionState:
    if refused is None:
        return ConditionState(True, Reason.VALID, "the spec is valid")
    kept = "Running pods keep the last accepted spec."
    if live is None:
        kept = "Nothing runs."
    elif executed is Executed.LIVE:
        kept = (
            "Running pods stay as they are made; replicas, policy, targets and routing are carried out, but "
            "for what this is about."
        )
    return ConditionState(False, refused.reason, f"{refused}. {kept}")


def _has_unheard_sidecars(subject: Subject, policy: PolicyStatus, observed: Observation) -> bool:
    """Tell whether a sidecar has neither answered nor failed to, of the policy and pods that were told of.

    So it is for seconds after an operator begins to lead. What was told of engines then stays: to call every
    policy unconfirmed and then confirmed would be two writes and two events for each service. A pod more is
    news, and not confirmed.
    """
    before: Body = subject.previous.get("policy") or {}
    told = before.get("hash"), subject.previous.get("readyReplicas")
    if told != (policy.hash, len(observed.ready)):
        return False
    return any(observed.report(pod) == SidecarReport() for pod in observed.ready)


def _states_before(subject: Subject, kinds: Collection[Condition]) -> dict[Condition, ConditionState]:
    """Return the states that were told last, of these conditions."""
    holds = {state: holds for holds, state in STATUSES.items()}
    return {
        Condition(told["type"]): ConditionState(
            holds[told["status"]], told["reason"], told.get("message", "")
        )
        for told in subject.previous.get("conditions") or ()
        if told["type"] in kinds
    }


def _condition(kind: Condition, state: ConditionState, subject: Subject, now: str) -> StatusCondition:
    """Make the condition, with the generation that it tells of."""
    before = told_before(kind, subject.previous)
    current = subject.executed is Executed.ALL or kind in _OF_THIS_PASS
    current &= subject.acceptance_known or kind not in _OF_SPEC or not before
    current |= subject.executed is Executed.LIVE and kind == Condition.POLICY_APPLIED
    return make_condition(kind, state, subject.previous, subject.generation if current else None, now)
