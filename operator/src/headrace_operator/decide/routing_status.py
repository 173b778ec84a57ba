"""What the gateway says of a service's route, and which pods it may call routed. Pure.

The picker reports in LLMRoute's status; nothing else is believed. What it said last stands while it is away:
Envoys keep what they have.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace_operator import names
from headrace_operator.api import ROUTE_KIND, Key, Reason
from headrace_operator.api.bodies import Body
from headrace_operator.decide.condition_state import ConditionState
from headrace_operator.decide.observation import Observation, Pod

_LOOK = "look at the pods of the gateway and the picker in the operator's namespace"
_REASONS = {
    "Refused": (Reason.ENVOY_REFUSED, "the picker's log has the whole; report it"),
    "NoEnvoy": (Reason.NO_ENVOY, _LOOK),
}


def routing_ready_state(key: Key, observed: Observation) -> ConditionState:
    """Decide whether every Envoy routes to all ready replicas."""
    route = observed.objects.get((ROUTE_KIND, key.name))
    if route is None:
        message = "the gateway has not been told of this service: see Accepted"
        return ConditionState(False, Reason.NOT_ACCEPTED, message)
    told: Body = route.get("status") or {}
    conditions = {each["type"]: each for each in told.get("conditions") or ()}
    generation = route["metadata"].get("generation", 1)
    accepted, programmed = conditions.get("Accepted"), conditions.get("Programmed")
    if accepted is None or programmed is None or told.get("observedGeneration", 0) < generation:
        subject = f"generation {generation} of LLMRoute {key.name}"
        message = f"no picker has reported on {subject} yet; if so for long: {_LOOK}"
        return ConditionState(None, Reason.NOT_REPORTED, message)
    if accepted["status"] != "True":
        words = accepted.get("message", "")
        fix = "Operator and picker may be of different releases: helm upgrade"
        return ConditionState(False, Reason.ROUTE_REFUSED, f"the picker refuses the route: {words} {fix}")
    if programmed["status"] != "True":
        reason, fix = _REASONS.get(programmed["reason"], (Reason.PENDING, f"if so for long: {_LOOK}"))
        return ConditionState(False, reason, f"{programmed.get('message', '')}; {fix}")
    return _endpoints(told, observed)


def _endpoints(told: Body, observed: Observation) -> ConditionState:
    ready, known = observed.ready, _known(told)
    if not ready:
        message = "the gateway knows the service; no replica is ready: see Ready"
        return ConditionState(False, Reason.NO_READY_REPLICAS, message)
    missing = [pod.name for pod in ready if pod.uid not in known]
    if missing:
        count = f"{len(missing)} of {len(ready)} ready replicas are not known to every Envoy yet"
        return ConditionState(
            False, Reason.ENDPOINTS_MISSING, f"{count}: {missing[0]}; if so for long: {_LOOK}"
        )
    return ConditionState(
        True, Reason.ROUTED, f"{told.get('envoys', 0)} Envoys route to {len(ready)} ready replicas"
    )


def newly_routed_pods(key: Key, observed: Observation) -> Iterator[Pod]:
    """Yield pods whose readiness waits for the gateway, and that every Envoy knows by now."""
    route = observed.objects.get((ROUTE_KIND, key.name)) or {}
    known = _known(route.get("status") or {})
    return (pod for pod in observed.pods if pod.awaits_route and pod.uid in known)


def _known(told: Body) -> set[str]:
    """Return the UIDs of the pods that every Envoy has; a pod's address alone may have been another's."""
    return set(told.get("pods") or ())


def routed_condition(now: str) -> dict[str, str]:
    """Make the condition of a pod that is routed to; it is never taken back."""
    return {
        "type": names.ROUTED_GATE,
        "status": "True",
        "reason": "Programmed",
        "message": "every Envoy has its address",
        "lastTransitionTime": now,
    }
