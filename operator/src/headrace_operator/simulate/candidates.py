"""The scheduling settings that are compared, each with the patch that asks for it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from headrace_engine.contracts import PolicyDocument, Prediction, StepBudget
from headrace_engine.policies import registry
from headrace_operator.api import LLMService, policy_document
from headrace_operator.api.bodies import Body, JsonObject
from headrace_operator.api.serving import block_name

SLO = "SLO"  # instead of a number of tokens
STEP_BUDGETS = (StepBudget("Engine"), StepBudget("SLO"), StepBudget("Fixed", 2048), StepBudget("Fixed", 1024))


@dataclass(frozen=True, slots=True)
class Candidate:
    """One setting of `spec.scheduling`."""

    name: str
    document: PolicyDocument
    current: bool  # what the service asks for now

    @property
    def in_words(self) -> str:
        """`FCFS, 2048 tokens per step`, `AccelGen, as many tokens per step as the targets allow`."""
        if self.document.step_budget.mode == "SLO":
            return f"{self.name.removesuffix(SLO)}as many tokens per step as the targets allow"
        return f"{self.name} tokens per step"

    @property
    def simulated(self) -> PolicyDocument:
        """The document to simulate with."""
        return make_simulated(self.document)


def make_simulated(document: PolicyDocument) -> PolicyDocument:
    """Return the document to simulate with: `Learned` needs the prompts, which no trace has."""
    if document.prediction.predictor != "Learned":
        return document
    return replace(document, prediction=Prediction()).sealed()


def list_candidates(service: LLMService, engine_tokens: int) -> list[Candidate]:
    """List every policy with default settings, each step budget that is one of its own, and the service's.

    `engine_tokens` is the engine's --max-num-batched-tokens: a fixed budget of as much is the engine's own.
    """
    current = policy_document(service)
    documents = [
        PolicyDocument(policy, {}, budget, current.slo, current.prediction).sealed()
        for policy in registry.policy_names()
        for budget in STEP_BUDGETS
        if budget.tokens is None or budget.tokens < engine_tokens
    ]
    wanted = _effect(current, engine_tokens)
    found = [
        Candidate(_name(document, engine_tokens), document, _effect(document, engine_tokens) == wanted)
        for document in documents
    ]
    if not any(candidate.current for candidate in found):
        found.insert(0, Candidate(_name(current, engine_tokens), current, current=True))
    return found


def make_patch(service: LLMService, candidate: Candidate) -> JsonObject:
    """Make the merge patch that sets the service's scheduling to `candidate`; stored settings go."""
    document = candidate.document
    scheduling: JsonObject = {
        "policy": document.policy,
        "stepBudget": {"mode": document.step_budget.mode},
    }
    if document.step_budget.tokens is not None:
        scheduling["stepBudget"]["tokens"] = document.step_budget.tokens
    if document.parameters:
        scheduling[block_name(document.policy)] = dict(document.parameters)
    elif service.spec.scheduling.settings.get(document.policy):
        scheduling[block_name(document.policy)] = None
    return {"spec": {"scheduling": scheduling}}


def patch_command(service: LLMService, change: Body) -> str:
    """Write the patch as a command to paste."""
    return (
        f"kubectl patch llmservice {service.key.name} -n {service.key.namespace} --type merge "
        f"-p '{json.dumps(change)}'"
    )


def _effect(document: PolicyDocument, engine_tokens: int) -> tuple[str, object, str]:
    """Return what the document comes to: policy, settings with their defaults, tokens per step."""
    settings = registry.parse_parameters(document.policy, document.parameters, "")
    return document.policy, settings, _tokens(document, engine_tokens)


def _tokens(document: PolicyDocument, engine_tokens: int) -> str:
    """Say how many tokens a step takes, or that its target decides."""
    if document.step_budget.mode == "SLO":
        return SLO
    return str(min(document.step_budget.tokens or engine_tokens, engine_tokens))


def _name(document: PolicyDocument, engine_tokens: int) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in document.parameters.items())
    return f"{document.policy}{f' ({settings})' if settings else ''}, {_tokens(document, engine_tokens)}"
