"""Policies by methods that no document can choose: as their papers have them, or without one of the parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from headrace_engine.contracts import ContractError, PolicyDocument
from headrace_engine.policies import accelgen, doubling_budget, parameters, registry
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.engine_view import EngineLimits
from headrace_engine.sim import published_econoserve

MODULES: Mapping[str, ModuleType] = {
    "EconoServe": published_econoserve,
    "AccelGen": accelgen,
    "DoublingBudget": doubling_budget,
}
"""By policy: what has its `Methods`, and a `compose` that takes them after the arguments of any policy's."""


@dataclass(frozen=True, slots=True)
class Form:
    """A policy document, and the methods by which its policy works; the policy's own where none is given.

    `methods` has the fields of the policy's `Methods` with camelCase keys, as the document's parameters.
    """

    document: PolicyDocument
    methods: Mapping[str, Any]

    def build(self, limits: EngineLimits) -> Policy:
        """Make a new policy with an empty queue; raises ContractError that names what is wrong."""
        module = MODULES.get(self.document.policy)
        if module is None:
            raise ContractError(f"methods: {self.document.policy} has none to choose")
        methods = parameters.parse(module.Methods, self.methods, "methods")
        return registry.build_policy(self.document, limits, partial(module.compose, methods=methods))
