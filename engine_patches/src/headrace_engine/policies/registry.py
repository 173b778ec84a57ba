"""The policies by name, and how a policy document becomes one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Literal

from headrace_engine.contracts import ContractError, PolicyDocument, Prediction, Slice, Slo
from headrace_engine.policies import (
    accelgen,
    doubling_budget,
    econoserve,
    fcfs,
    larry,
    parameters,
    slices,
    slo_budget,
    step_budget,
)
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.engine_view import EngineLimits

POLICIES: Mapping[str, ModuleType] = {
    "FCFS": fcfs,
    "LARRY": larry,
    "EconoServe": econoserve,
    "AccelGen": accelgen,
    "DoublingBudget": doubling_budget,
}
"""Each module has a docstring for people, a dataclass `Params` and `compose(params, limits, step_budget)`.

A module that is made for another step budget than the engine's own says so with `STEP_BUDGET = "SLO"`. One
that shows its inner state names its numbers in `GAUGES`, a dict from name to meaning, fewer than MOST_GAUGES.
What only simulations choose, but other releases of the operator know as parameters, is named in `IGNORED`:
a document may have it, and it does nothing.
"""

Compose = Callable[[Any, EngineLimits, step_budget.StepBudget], Policy]
"""How a policy is made of its `Params`."""

MOST_GAUGES = 6
LARGEST_SCALE_PERCENT = 1_000_000


def policy_names() -> tuple[str, ...]:
    """Return what `PolicyDocument.policy` may be."""
    return tuple(POLICIES)


def parameter_schema(name: str) -> dict[str, Any]:
    """Make the JSON schema of the parameters of policy `name`; raises ContractError if there is none such."""
    return parameters.schema(_module(name).Params)


def used_parameters(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `values` that do anything; raises ContractError if there is no policy `name`."""
    ignored: tuple[str, ...] = getattr(_module(name), "IGNORED", ())
    return {key: value for key, value in values.items() if key not in ignored}


def parse_parameters(name: str, values: Mapping[str, Any], where: str) -> Any:
    """Make the `Params` of policy `name`; raises ContractError that names the key below `where`."""
    return parameters.parse(_module(name).Params, used_parameters(name, values), where)


def validate_document(document: PolicyDocument) -> None:
    """Raise ContractError, naming key and bounds, unless `build_policy` would accept it for some engine."""
    parse_parameters(document.policy, document.parameters, "PolicyDocument.parameters")
    _budget(document)
    _check_slo(document.slo)
    _check_prediction(document.prediction)
    if document.slice is not None:
        _check_slice(document.slice)


def default_budget(policy: str) -> Literal["Engine", "SLO"]:
    """Return the step budget's mode that `policy` is made for; raises ContractError if there is none such."""
    mode: Literal["Engine", "SLO"] = getattr(_module(policy), "STEP_BUDGET", "Engine")
    return mode


def policy_gauges(policy: str) -> Mapping[str, str]:
    """Return names and meanings of the numbers that `policy` shows; none if there is no such policy."""
    if policy not in POLICIES:
        return {}
    own: Mapping[str, str] = getattr(POLICIES[policy], "GAUGES", {})
    return {**own, **slices.GAUGES}


def build_policy(document: PolicyDocument, limits: EngineLimits, compose: Compose | None = None) -> Policy:
    """Build a policy, with an empty queue, as the document asks.

    ContractError like `validate_document`, and where a slice is shorter than the engine's KV blocks.
    `compose` makes it in place of the policy's own, for simulations.
    """
    validate_document(document)
    params = parse_parameters(document.policy, document.parameters, "PolicyDocument.parameters")
    make: Compose = compose or _module(document.policy).compose
    policy = make(params, limits, _budget(document))
    if document.slice is None:
        return policy
    tokens = document.slice.tokens
    if tokens < limits.block_size:
        raise ContractError(
            f"PolicyDocument.slice.tokens: {tokens} is below the KV block of the engine, {limits.block_size}"
        )
    return slices.slice_policy(policy, tokens, document.slice.patience_ms / 1000)


def _budget(document: PolicyDocument) -> step_budget.StepBudget:
    tokens = document.step_budget.tokens
    mode: str = document.step_budget.mode
    if mode == "Fixed":
        if tokens is None or tokens < 1:
            raise ContractError("PolicyDocument.stepBudget.tokens: mode Fixed needs a number of at least 1")
        return step_budget.fixed_budget(tokens)
    if tokens is not None:
        raise ContractError("PolicyDocument.stepBudget.tokens: only with mode Fixed; remove it")
    if mode == "Policy":
        mode = default_budget(document.policy)
    return slo_budget.slo_budget() if mode == "SLO" else step_budget.engine_budget


def _check_slo(slo: Slo) -> None:
    where = "PolicyDocument.slo"
    for key in ("ttft", "tpot", "e2e"):
        _check_bounds(getattr(slo, f"{key}_ms"), 1, None, f"{where}.{key}Ms")
        if slo.per_request is not None:
            _check_bounds(getattr(slo.per_request, f"{key}_ms"), 1, None, f"{where}.perRequest.{key}Ms")
    if slo.e2e_scale_percent is not None:
        _check_bounds(slo.e2e_scale_percent, 100, LARGEST_SCALE_PERCENT, f"{where}.e2eScalePercent")
        if slo.e2e_ms is not None:
            raise ContractError(f"{where}.e2eScalePercent: excludes e2eMs; remove one of them")


def _check_prediction(prediction: Prediction) -> None:
    _check_bounds(prediction.quantile_percent, 1, 99, "PolicyDocument.prediction.quantilePercent")


def _check_slice(asked: Slice) -> None:
    _check_bounds(asked.tokens, 1, None, "PolicyDocument.slice.tokens")
    _check_bounds(asked.patience_ms, 1, None, "PolicyDocument.slice.patienceMs")


def _check_bounds(value: int | None, low: int, high: int | None, where: str) -> None:
    if value is not None and value < low:
        raise ContractError(f"{where}: {value} is below {low}")
    if value is not None and high is not None and value > high:
        raise ContractError(f"{where}: {value} is above {high}")


def _module(name: str) -> ModuleType:
    if name not in POLICIES:
        raise ContractError(f"PolicyDocument.policy: {name!r} is not one of {', '.join(POLICIES)}")
    return POLICIES[name]
