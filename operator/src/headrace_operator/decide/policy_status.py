"""What engines were told to schedule by, what they do, and why they do not as they were told. Pure."""

from __future__ import annotations

from headrace_engine.contracts import (
    AppliedPolicy,
    ContractError,
    EngineInfo,
    EngineStatus,
    PolicyDocument,
    loads,
)
from headrace_engine.policies import registry
from headrace_operator import names
from headrace_operator.api import Key, PolicyStatus, Reason
from headrace_operator.decide.condition_state import ConditionState
from headrace_operator.decide.observation import Observation, Pod

_REACH = (
    f"look for a NetworkPolicy that closes port {names.SIDECAR_PORT}, and at the container {names.SIDECAR}"
)
_ROLL = "a sidecar that is older than the operator (status.runtimeVersion) comes anew with any change of pods"


def policy_in_force(key: Key, observed: Observation) -> PolicyDocument | None:
    """Read the document that the live ConfigMap hands to the engines; None if there is none to read."""
    config_map = observed.objects.get(("ConfigMap", names.policy_config_map(key)))
    text = ((config_map or {}).get("data") or {}).get(names.POLICY_FILE)
    try:
        return loads(PolicyDocument, text) if text else None
    except ContractError:
        return None  # the next write of ours heals it


def policy_status(document: PolicyDocument | None, observed: Observation) -> PolicyStatus | None:
    """Return what engines were told, and what they do."""
    if document is None:
        return None
    statuses = [report for pod in observed.ready if (report := observed.report(pod).status)]
    in_force = sorted({_schedules_by(status, document) for status in statuses})
    return PolicyStatus(
        name=document.policy,
        hash=document.hash,
        applied_replicas=_applied(document, observed),
        in_force=", ".join(in_force) or None,
    )


def _schedules_by(status: EngineStatus, document: PolicyDocument) -> str:
    """Return the policy that an engine runs, whatever it was told to."""
    if status.engine.state == "Stock":
        return "Stock"
    if status.policy.disabled:
        return "FCFS"
    if status.policy.applied_hash == document.hash:
        return document.policy
    return status.policy.name if status.policy.name in registry.policy_names() else "Unknown"


def policy_applied_state(document: PolicyDocument | None, observed: Observation) -> ConditionState:
    """Decide whether all ready engines schedule by the document that is in force."""
    if document is None or not observed.ready:
        return ConditionState(
            None, Reason.NO_READY_REPLICAS, "no engine is ready to apply a policy: see Ready"
        )
    failures = [
        (pod, trouble) for pod in observed.ready if (trouble := _policy_trouble(pod, document, observed))
    ]
    if failures:
        pod, (reason, message) = failures[0]
        return ConditionState(
            False, reason, f"{len(failures)} of {len(observed.ready)} replicas; {pod.name}: {message}"
        )
    applied = _applied(document, observed)
    count = f"{applied} of {len(observed.ready)} ready replicas run {document.policy} ({document.hash})"
    if applied < len(observed.ready):
        return ConditionState(False, Reason.PENDING, count)
    return ConditionState(True, Reason.APPLIED, count)


def _policy_trouble(pod: Pod, document: PolicyDocument, observed: Observation) -> tuple[str, str] | None:
    report = observed.report(pod)
    if report.status is None:
        return (Reason.SIDECAR_UNREACHABLE, f"{report.error}; {_REACH}") if report.error else None
    engine, policy = report.status.engine, report.status.policy
    if engine.state == "Stock":
        return Reason.ENGINE_VERSION_NOT_SUPPORTED, describe_stock_engine(engine)
    if policy.rejected_hash == document.hash:
        return Reason.POLICY_REJECTED, f"{policy.error or 'the sidecar refused the policy document'}; {_ROLL}"
    if policy.disabled:
        return Reason.POLICY_FAILED, describe_failed_policy(policy)
    return None


def describe_stock_engine(engine: EngineInfo) -> str:
    """Explain why an engine has no policies, and what it does instead."""
    why = engine.reason or f"vLLM {engine.vllm_version} is not supported"
    return f"{why}; requests are served in the order of vLLM's own scheduler"


def describe_failed_policy(policy: AppliedPolicy) -> str:
    """Explain why an engine's policy failed, and what it does instead."""
    why = policy.error or "the policy failed repeatedly"
    return f"{why}; the engine schedules FCFS until policy or settings change"


def _applied(document: PolicyDocument, observed: Observation) -> int:
    reports = (observed.report(pod).status for pod in observed.ready)
    return sum(1 for report in reports if report and report.policy.applied_hash == document.hash)
