"""The policies by name, and how a policy document becomes one of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, cast

from headrace_engine.contracts import ContractError, PolicyDocument, StepBudget
from headrace_engine.policies import fcfs, larry, parameters, step_budget
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.view import EngineLimits

POLICIES: Mapping[str, ModuleType] = {"FCFS": fcfs, "LARRY": larry}
"""Each module has a docstring for people, a dataclass `Params` and `compose(params, limits, step_budget)`."""


def names() -> tuple[str, ...]:
    """What `PolicyDocument.policy` may be."""
    return tuple(POLICIES)


def parameter_schema(name: str) -> dict[str, Any]:
    """JSON schema of the parameters of policy `name`; raises ContractError if there is no such policy."""
    return parameters.schema(_module(name).Params)


def validate(document: PolicyDocument) -> None:
    """Raise ContractError, naming key and bounds, unless `build` would accept the document."""
    parameters.parse(_module(document.policy).Params, document.parameters, "PolicyDocument.parameters")
    _budget(document.step_budget)
    for key in ("ttft_ms", "tbt_ms", "jct_ms"):
        target = getattr(document.slo, key)
        if target is not None and target < 1:
            raise ContractError(f"PolicyDocument.slo.{key[:-3]}Ms: {target} is below 1")


def build(document: PolicyDocument, limits: EngineLimits) -> Policy:
    """A new policy, with an empty queue, as the document asks; raises ContractError like `validate`."""
    validate(document)
    module = _module(document.policy)
    params = parameters.parse(module.Params, document.parameters, "PolicyDocument.parameters")
    return cast("Policy", module.compose(params, limits, _budget(document.step_budget)))


def _budget(wanted: StepBudget) -> step_budget.StepBudget:
    if wanted.mode == "Engine":
        if wanted.tokens is not None:
            raise ContractError("PolicyDocument.stepBudget.tokens: only with mode Fixed; remove it")
        return step_budget.engine_budget
    if wanted.tokens is None or wanted.tokens < 1:
        raise ContractError("PolicyDocument.stepBudget.tokens: mode Fixed needs a number of at least 1")
    return step_budget.fixed_budget(wanted.tokens)


def _module(name: str) -> ModuleType:
    if name not in POLICIES:
        raise ContractError(f"PolicyDocument.policy: {name!r} is not one of {', '.join(POLICIES)}")
    return POLICIES[name]
