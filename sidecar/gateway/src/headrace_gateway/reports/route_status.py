"""LLMRoute's status: what the picker makes of a route, and how far Envoys have it. Pure."""

from collections.abc import Mapping
from typing import Any

from headrace_gateway.kube.llmroutes import MESSAGE_LENGTH, ReadRoute
from headrace_gateway.xds.acknowledged import Progress

MOST_PODS = 2048  # that the schema allows

Json = dict[str, Any]


def route_status(read: ReadRoute, progress: Progress, now: str) -> Json:
    """Make the status of a route at `now` (RFC 3339, UTC)."""
    metadata, before = read.manifest["metadata"], read.manifest.get("status") or {}
    generation = metadata.get("generation", 1)
    states = {"Accepted": _accepted(read), "Programmed": _programmed(progress)}
    return {
        "observedGeneration": generation,
        "envoys": progress.envoys,
        "pods": sorted(progress.pods)[:MOST_PODS],
        "conditions": [_condition(kind, state, generation, before, now) for kind, state in states.items()],
    }


def is_passing(status: Json) -> bool:
    """Tell whether the status is of the kind that passes: Envoys have been told and have not answered.

    They are told nothing of a route that is refused.
    """
    reasons = {each["type"]: each["reason"] for each in status["conditions"]}
    return reasons["Accepted"] == "Accepted" and reasons["Programmed"] in {"Pending", "NoEnvoy"}


def _accepted(read: ReadRoute) -> tuple[str, str, str]:
    if read.error:
        return "False", "Refused", f"{read.error}. What was accepted before stays in force."
    return "True", "Accepted", "the picker uses this route"


def _programmed(progress: Progress) -> tuple[str, str, str]:
    count = f"{progress.having} of {progress.envoys} Envoys have the route"
    if not progress.envoys:
        return "False", "NoEnvoy", "no Envoy takes its configuration from the picker"
    if progress.having == progress.envoys:
        return "True", "Programmed", count
    if progress.refusal:
        return "False", "Refused", f"{count}; one refused it: {progress.refusal}"
    return "False", "Pending", count


def _condition(
    kind: str, state: tuple[str, str, str], generation: int, before: Mapping[str, Any], now: str
) -> Json:
    """Make a condition; its transition time moves only with its status."""
    status, reason, message = state
    told: Mapping[str, Any] = next(
        (each for each in before.get("conditions") or () if each.get("type") == kind), {}
    )
    since = told.get("lastTransitionTime") if told.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message[:MESSAGE_LENGTH],
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
    }
