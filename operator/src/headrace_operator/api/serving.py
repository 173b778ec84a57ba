"""How requests are scheduled, balanced and drained: the parts of an LLMService that change under load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from headrace_engine.policies import registry
from headrace_operator.api.base import (
    Block,
    Duration,
    live,
    milliseconds,
    rolls,
    rule,
    ruled,
    shorter_or_equal,
)


class StepBudget(Block):
    """How many tokens one engine step may process."""

    mode: Literal["Engine", "Fixed"] = live(
        "Engine keeps vLLM's own --max-num-batched-tokens; Fixed uses `tokens`, never more than the "
        "engine's limit.",
        "Engine",
    )
    tokens: int | None = live(
        "Tokens per step with mode Fixed; kept but unused otherwise.", None, ge=1, le=1_048_576
    )

    model_config = ruled(
        rule("self.mode != 'Fixed' || has(self.tokens)", "stepBudget.mode Fixed needs stepBudget.tokens")
    )


class Scheduling(Block):
    """The policy inside each engine, with the stored settings of every policy.

    `settings` holds the blocks named after policies (`larry: {alpha: 10}`); the selected one applies and the
    others wait, so that a patch of `policy` alone is enough to switch. Their schema comes from each policy's
    `Params`, so adding a policy needs no change here.
    """

    policy: str = live(
        "Scheduling policy of the engines: FCFS is vLLM's own order; the others are described with "
        "their settings.",
        "FCFS",
        json_schema_extra={"enum": list(registry.names())},
    )
    step_budget: StepBudget = live("Tokens per engine step.", StepBudget())
    settings: SkipJsonSchema[Mapping[str, Mapping[str, Any]]] = Field(default_factory=dict, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _collect_settings(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        blocks = {name: data[key] for name in registry.names() if (key := block_name(name)) in data}
        return {**data, "settings": blocks}

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Settings of the selected policy, where given; the policy's own defaults fill the rest."""
        return self.settings.get(self.policy, {})


class Slo(Block):
    """Targets of the service: each request's attainment is measured against them; they are no guarantee."""

    ttft: Duration | None = live("Time to first token, from arrival; unset means no target.", None)
    tbt: Duration | None = live("Time between two tokens of one request; unset means no target.", None)
    jct: Duration | None = live(
        "Job completion time, from arrival to last token; unset means no target.", None
    )

    model_config = ruled(
        rule(
            shorter_or_equal("ttft", "jct"),
            "slo.ttft must not exceed slo.jct: no request can finish before its first token",
        ),
        rule(shorter_or_equal("tbt", "jct"), "slo.tbt must not exceed slo.jct"),
    )

    @model_validator(mode="after")
    def _possible(self) -> Slo:
        for name, value in (("ttft", self.ttft), ("tbt", self.tbt)):
            if value and self.jct and milliseconds(value) > milliseconds(self.jct):
                raise ValueError(f"slo.{name} must not exceed slo.jct")
        return self


class Sal(Block):
    """Settings of the SAL balancer."""

    kv_release: Literal["Gross", "Net"] = live(
        "Whether KV freed per second counts gross, or net of what running decodes consume.", "Net"
    )


class Routing(Block):
    """How the gateway spreads requests over replicas."""

    balancer: Literal["SAL", "LeastRequest", "PowerOfTwo", "RoundRobin", "Random"] = live(
        "SAL sends a request to the replica that can start it soonest, by queued prefill work and "
        "free KV memory; "
        "the others are the usual ones.",
        "SAL",
    )
    sal: Sal = live("Settings of SAL; kept but unused with other balancers.", Sal())
    max_queue: Duration | None = live(
        "Refuse a request with 429 when every replica would let it wait longer than this (SAL's "
        "estimate); unset "
        "means requests always queue.",
        None,
    )


class Disruption(Block):
    """How pods are replaced and drained."""

    max_unavailable: int = live(
        "Replicas that may be down at once, in rollouts and evictions; an eviction may always take one.",
        1,
        ge=0,
        le=1000,
    )
    max_surge: int = live(
        "Replicas that a rollout may start on top; 0 because clusters seldom have spare GPUs.",
        0,
        ge=0,
        le=1000,
    )
    drain_timeout: Duration = rolls("How long a stopping replica may take to finish its requests.", "5m")

    model_config = ruled(
        rule(
            "self.maxUnavailable > 0 || self.maxSurge > 0",
            "a rollout needs maxUnavailable or maxSurge above 0",
        )
    )


def block_name(policy: str) -> str:
    """Key of a policy's settings: `LARRY` → `larry`, `DoublingBudget` → `doublingBudget`."""
    return policy.lower() if policy.isupper() else policy[0].lower() + policy[1:]
