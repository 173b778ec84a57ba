"""How requests are scheduled, balanced and drained: the parts of an LLMService that change under load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from headrace_engine.contracts.gateway_config import Balancer, Drain
from headrace_engine.contracts.request_overrides import OVERRIDES, argument_name, header_name
from headrace_engine.policies import registry
from headrace_operator.api.base import (
    ATOMIC,
    Block,
    Client,
    Duration,
    Integer,
    RequestsPerMinute,
    live,
    milliseconds,
    rolls,
    rule,
    ruled,
    shorter_or_equal,
)
from headrace_operator.api.bodies import Body


class StepBudget(Block):
    """How many tokens one engine step may process."""

    mode: Literal["Policy", "Engine", "Fixed", "SLO"] = live(
        "Policy is what the scheduling policy is made for: SLO for AccelGen, Engine for the others. Engine "
        "keeps vLLM's own --max-num-batched-tokens; Fixed uses `tokens`; SLO takes as many as the "
        "targets of the running requests leave time for. None exceeds the engine's limit.",
        "Policy",
    )
    tokens: Integer | None = live(
        "Tokens per step with mode Fixed; kept but unused otherwise.", None, ge=1, le=1_048_576
    )

    model_config = ruled(
        rule(
            "self.mode != 'Fixed' || has(self.tokens)",
            "stepBudget.mode Fixed needs stepBudget.tokens",
            ".tokens",
        )
    )


class Slice(Block):
    """How long a request runs before it makes room for others that wait."""

    tokens: Integer = live(
        "Output tokens after which a running request steps back if there is no room for one that has not had "
        "as many yet: it loses its KV cache, and goes on from where it was once there is room to spare. At "
        "least the engine's KV block (16 with most GPUs), at most engine.maxModelLen. Lower it where "
        "requests wait long for their first token; raise it where answers pause too often.",
        ge=16,
        le=16_777_216,
    )
    patience: Duration = live(
        "Who has waited for so long to go on goes ahead of all others, one request at a time.",
        "30s",
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
        json_schema_extra={"enum": list(registry.policy_names())},
    )
    step_budget: StepBudget = live("Tokens per engine step.", StepBudget())
    slice: Slice | None = live(
        "How long a request runs before it makes room for others that wait, with any policy; unset: until it "
        "ends.",
        None,
    )
    settings: SkipJsonSchema[Mapping[str, Body]] = Field(default_factory=dict, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _collect_settings(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        blocks = {name: data[key] for name in registry.policy_names() if (key := block_name(name)) in data}
        return {**data, "settings": blocks}

    @property
    def parameters(self) -> Body:
        """Settings of the selected policy, where given; the policy's own defaults fill the rest."""
        return registry.used_parameters(self.policy, self.settings.get(self.policy, {}))


*_FIRST_HEADERS, _LAST_HEADER = map(header_name, OVERRIDES)
_OVERRIDE_HEADERS = f"{', '.join(_FIRST_HEADERS)} and {_LAST_HEADER}"


class PerRequest(Block):
    """What clients may ask for themselves."""

    enabled: bool = live(
        "Whether requests may bring targets of their own and a hint of how long their output will be: "
        f"headers {_OVERRIDE_HEADERS} with chat and text completions, or {argument_name(OVERRIDES[0])} "
        "and so on in the vllm_xargs of any body, also of /v1/responses, where headers say nothing. What is "
        "no number or not allowed is ignored and counted.",
        False,
    )
    min_ttft: Duration | None = live(
        "Tightest TTFT that a request may ask for; a tighter one counts as this. Unset: slo.ttft; without "
        "either, requests cannot set it. Kept but unused while not enabled.",
        None,
    )
    min_tpot: Duration | None = live(
        "The same for tpot; unset: slo.tpot. Kept but unused while not enabled.", None
    )
    min_e2e: Duration | None = live(
        "The same for e2e; unset: the service's own. Kept but unused while not enabled.", None
    )


class Slo(Block):
    """Targets of each request: policies schedule for them, attainment is measured; they are no guarantee."""

    ttft: Duration | None = live("Time to first token, from arrival; unset means no target.", None)
    tpot: Duration | None = live(
        "Time per output token: a request's mean time between tokens; unset means no target.", None
    )
    e2e: Duration | None = live(
        "End-to-end latency, from arrival to last token; unset means no target.", None
    )
    e2e_scale_percent: Integer | None = live(
        "End-to-end latency as a percentage of what the request would take alone on its engine, as the "
        "engine measures it: 200 allows twice as long. Instead of slo.e2e.",
        None,
        ge=100,
        le=1_000_000,
    )
    per_request: PerRequest = live("Targets that requests bring themselves.", PerRequest())

    model_config = ruled(
        rule(
            "!(has(self.e2e) && has(self.e2eScalePercent))",
            "slo.e2e and slo.e2eScalePercent exclude each other: keep one and set the other to null",
            ".e2eScalePercent",
        ),
        rule(
            shorter_or_equal("ttft", "e2e"),
            "slo.ttft must not exceed slo.e2e: no request can finish before its first token",
            ".ttft",
        ),
        rule(shorter_or_equal("tpot", "e2e"), "slo.tpot must not exceed slo.e2e", ".tpot"),
    )

    @model_validator(mode="after")
    def _possible(self) -> Slo:
        if self.e2e and self.e2e_scale_percent:
            raise ValueError("slo.e2e and slo.e2eScalePercent exclude each other")
        for name, value in (("ttft", self.ttft), ("tpot", self.tpot)):
            if value and self.e2e and milliseconds(value) > milliseconds(self.e2e):
                raise ValueError(f"slo.{name} must not exceed slo.e2e")
        return self


class Prediction(Block):
    """How each engine predicts the output length of a request; policies that plan ahead use it."""

    predictor: Literal["None", "Quantile", "Learned"] = live(
        "None expects the mean of recent requests. Quantile learns from finished requests that were "
        "alike. "
        "Learned trains a small model from the engine's own traffic, in the background on one core.",
        "Quantile",
    )
    quantile_percent: Integer = live(
        "Which percentile of the lengths of such requests is expected: higher predicts too little less "
        "often. Kept but unused with None.",
        50,
        ge=1,
        le=99,
    )


class Sal(Block):
    """Settings of the SAL balancer."""

    kv_release: Literal["Gross", "Net"] = live(
        "Whether KV freed per second counts gross, or net of what running decodes consume.", "Net"
    )


class Access(Block):
    """Who may use the service."""

    allowed_clients: tuple[Client, ...] | None = live(
        "Clients that may use the service, by the names of their entries in the Secret of the chart's "
        "gateway.apiKeys; others get 403, and no model of this service in /v1/models. Unset: everyone whom "
        "the gateway lets in.",
        None,
        min_length=1,
        max_length=64,
        json_schema_extra=ATOMIC,  # a set that an apply empties would be unset
    )


class Limits(Block):
    """How many requests the gateway lets through."""

    requests_per_minute: RequestsPerMinute | None = live(
        "Requests of all clients together that each Envoy of the gateway lets through in a minute; others "
        "get 429. With n Envoys up to n times as many. Unset: no limit.",
        None,
    )
    requests_per_minute_per_client: RequestsPerMinute | None = live(
        "The same for each client, by its API key, which the gateway must ask for. Unset: no limit.",
        None,
    )


_MOVES = "routing.rebalance Auto needs routing.resume Auto"


class Routing(Block):
    """Which requests the gateway lets through, and how it spreads them over replicas."""

    balancer: Balancer = live(
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
    resume: Literal["Auto", "Never"] = live(
        "Whether another replica goes on with a stream whose replica is lost, in the same answer after the "
        "last token that the client has. Auto: it does for chat and text completions; what it cannot go on "
        "with (several choices, pictures, /v1/responses) ends with an error. Never: all end with their "
        "replica.",
        "Auto",
    )
    rebalance: Literal["Auto", "Never"] = live(
        "Whether streams that resume can go on with also move between replicas that live. Auto: those that "
        "wait move to a replica where nobody does, a replica slower than another hands over some of those "
        "that it runs, and those that step back (scheduling.slice) go on where there is room. Never: each "
        "stays where it began.",
        "Never",
    )
    access: Access = live("Which clients may use the service.", Access())
    limits: Limits = live("How many requests a minute it takes.", Limits())

    model_config = ruled(rule("self.rebalance != 'Auto' || self.resume == 'Auto'", _MOVES, ".rebalance"))

    @model_validator(mode="after")
    def _can_move(self) -> Routing:
        if self.rebalance == "Auto" and self.resume != "Auto":
            raise ValueError(_MOVES)
        return self

    @property
    def needs_api_keys(self) -> str:
        """The field that means something only where clients have keys; empty if there is none."""
        if self.access.allowed_clients is not None:
            return "spec.routing.access.allowedClients"
        if self.limits.requests_per_minute_per_client is not None:
            return "spec.routing.limits.requestsPerMinutePerClient"
        return ""


_ROLLS = "a rollout needs maxUnavailable or maxSurge above 0"


class Disruption(Block):
    """How pods are replaced and drained."""

    max_unavailable: Integer = live(
        "Replicas that may be down at once, in rollouts and evictions; an eviction may always take one.",
        1,
        ge=0,
        le=1000,
    )
    max_surge: Integer = live(
        "Replicas that a rollout may start on top; 0 because clusters seldom have spare GPUs.",
        0,
        ge=0,
        le=1000,
    )
    drain: Drain = live(
        "What becomes of streams on a replica that is being stopped. Move: another replica goes on with "
        "them, if one is ready and routing.resume is Auto; the rest has drainTimeout. Wait: all have it.",
        "Move",
    )
    drain_timeout: Duration = rolls("How long a stopping replica may take to finish its requests.", "5m")

    model_config = ruled(rule("self.maxUnavailable > 0 || self.maxSurge > 0", _ROLLS, ".maxSurge"))

    @model_validator(mode="after")
    def _can_roll(self) -> Disruption:
        if not (self.max_unavailable or self.max_surge):
            raise ValueError(f"disruption: {_ROLLS}")
        return self


def block_name(policy: str) -> str:
    """Return the key of a policy's settings: `LARRY` → `larry`, `DoublingBudget` → `doublingBudget`."""
    return policy.lower() if policy.isupper() else policy[0].lower() + policy[1:]
