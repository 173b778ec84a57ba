"""How a rollout goes, and what to do when it cannot succeed: back to the template that was ready last. Pure.

A rollout has failed when none of its pods serves and they crash again and again, or the progress deadline has
passed, unless all that they lack is a node of the kind that they had. Its inputs are then given up for good:
only other inputs are tried again, so nothing loops. What of the spec does not shape pods (replicas, policy,
targets, routing) goes on being carried out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace_operator import names
from headrace_operator.api import LLMService, PodReason
from headrace_operator.api.bodies import Body
from headrace_operator.decide.observation import Observation, Pod
from headrace_operator.desired.history import (
    NOTHING_NEW,
    LastReady,
    RolledBack,
    Rollout,
    last_ready,
    recorded_annotation,
    rolled_back,
    running_inputs,
)
from headrace_operator.desired.inputs import changed_fields, claim_in, input_blocks, inputs_hash, with_blocks
from headrace_operator.desired.manifest import content_hash

_CRASHES = 3  # of one pod; two may come of an accelerator whose last user is still leaving
_NO_PLACE = {PodReason.UNSCHEDULABLE, PodReason.CLAIM_NOT_BOUND}
_MESSAGE_LIMIT = 1500


def assess_rollout(
    service: LLMService, live: Body | None, observed: Observation
) -> tuple[LLMService, Rollout]:
    """Return the service to execute, not the wanted one where that failed, and how its rollout goes."""
    if live is None:
        return service, NOTHING_NEW
    spec, ready, given_up = input_blocks(service), last_ready(live), rolled_back(live)
    asked = content_hash(spec)
    as_before = ready is not None and _placing(ready.spec) == _placing(spec)
    failure = _failure(live, observed, as_before=as_before)
    seen = Rollout(load_seconds=_load_seconds(live, observed), failure=failure)
    if ready is None or ready.inputs == asked:
        return service, seen
    if given_up is None or given_up.inputs != asked:
        if not seen.failure or recorded_annotation(live, names.INPUTS_HASH) != asked:
            return service, seen
        given_up = RolledBack(asked, _message(service, ready, seen.failure))
    before = _restored(service, ready)
    return (service, seen) if before is None else (before, replace(seen, rolled_back=given_up))


def service_as_served(service: LLMService, live: Body | None) -> LLMService:
    """Return the service as clients are to find it: with the names that it had while its pods are replaced.

    Engines answer to the names that they were started with.
    """
    ready, asked = last_ready(live), inputs_hash(service)
    if live is None or ready is None or ready.inputs == asked:
        return service
    if is_complete(live) and recorded_annotation(live, names.INPUTS_HASH) == asked:
        return service
    return _restored(service, ready) or service


def service_as_running(service: LLMService, live: Body | None) -> LLMService | None:
    """Return the service with the inputs of the pods that run; None if they are not known.

    It is carried out while its own inputs are refused.
    """
    inputs = running_inputs(live)
    return None if inputs is None else _with_inputs(service, inputs)


def is_complete(live: Body) -> bool:
    """Tell whether all replicas have the live template and are ready."""
    wanted, told = int(live["spec"]["replicas"]), live.get("status", {})
    counts = [told.get(field, 0) for field in ("replicas", "updatedReplicas", "readyReplicas")]
    return wanted > 0 and _is_current(live) and all(count == wanted for count in counts)


def is_surging(live: Body) -> bool:
    """Tell whether replicas are replaced only after their successors are ready."""
    pace = live["spec"]["strategy"]["rollingUpdate"]
    return bool(pace["maxSurge"]) and not pace["maxUnavailable"]


def is_stuck(live: Body) -> bool:
    """Tell whether no pod became ready for so long that the rollout has failed."""
    progressing = deployment_condition(live, "Progressing")
    timed_out = progressing.get("reason") == "ProgressDeadlineExceeded"
    return progressing.get("status") == "False" and timed_out and _is_current(live)


def deployment_condition(live: Body, kind: str) -> Body:
    """Return a condition of the Deployment; empty if it has none of that kind."""
    return next((c for c in live.get("status", {}).get("conditions") or [] if c["type"] == kind), {})


def _is_current(live: Body) -> bool:
    """Tell whether the status is about the Deployment as it is."""
    seen: int = live.get("status", {}).get("observedGeneration", 0)
    return seen >= int(live["metadata"].get("generation", 0))


def _load_seconds(live: Body, observed: Observation) -> int | None:
    return max((pod.load_seconds for pod in observed.ready), default=0) if is_complete(live) else None


def _placing(spec: Body) -> tuple[Any, ...]:
    """Return what of the blocks decides where pods can run."""
    model = spec.get("model", {})
    claim = model.get("source", "") if model.get("source", "").startswith("pvc://") else ""
    size = spec.get("engine", {}).get("tensorParallelSize")
    asked = spec.get("accelerator"), spec.get("podTemplate")
    return asked, size, model.get("cache"), claim, claim_in(spec)


def _failure(live: Body, observed: Observation, *, as_before: bool) -> str:
    """Explain why the rollout of the live template cannot succeed; empty: it still may, or has.

    `as_before`: its pods run wherever the last ones did, so that for want of a node the spec is not to blame.
    """
    if is_complete(live):
        return ""
    inputs = recorded_annotation(live, names.INPUTS_HASH)
    new = [pod for pod in observed.pods if pod.inputs == inputs]
    for pod in new:
        crashes = pod.problem is not None and pod.problem.reason == PodReason.CRASHING
        if pod.problem and crashes and pod.restarts >= _CRASHES and not any(p.ready for p in new):
            return f"{pod.name}: {pod.problem.message}"
    if new and all(pod.ready or _are_only_unrouted(pod) for pod in new):
        return ""  # the gateway is to blame, which other inputs would not mend
    homeless = [pod for pod in new if pod.problem and pod.problem.reason in _NO_PLACE]
    if is_stuck(live) and not any(pod.ready for pod in new) and not (as_before and new and homeless == new):
        why = next((f"; {pod.name}: {pod.problem.message}" for pod in new if pod.problem), "")
        return f"no new pod became ready within {live['spec']['progressDeadlineSeconds']} s{why}"
    return ""


def _are_only_unrouted(pod: Pod) -> bool:
    return pod.problem is not None and pod.problem.reason == PodReason.NOT_ROUTED


def _restored(service: LLMService, ready: LastReady) -> LLMService | None:
    """Return the service with the inputs that were ready last; None if this release cannot read them."""
    return _with_inputs(service, ready.spec)


def _with_inputs(service: LLMService, spec: Body) -> LLMService | None:
    try:
        before = with_blocks(service, spec)
    except (ValueError, KeyError, TypeError):
        return None
    return before if inputs_hash(before) == content_hash(spec) else None


def _message(service: LLMService, ready: LastReady, failure: str) -> str:
    fields = " and ".join(changed_fields(ready.spec, input_blocks(service)))
    to_do = f"correct {fields}" if service.placed_replicas is None else f"its GPUPool or you chose {fields}"
    return (
        f"generation {service.generation} failed and what was ready before it runs again: "
        f"{failure[:_MESSAGE_LIMIT]}; {to_do}: other values are tried again, these are not"
    )
