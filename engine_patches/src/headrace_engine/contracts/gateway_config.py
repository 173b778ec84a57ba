"""What the gateway must know of one service."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headrace_engine.contracts.policy_document import Slo

Balancer = Literal["SAL", "LeastRequest", "PowerOfTwo", "RoundRobin", "Random"]
Drain = Literal["Move", "Wait"]


@dataclass(frozen=True, slots=True)
class SalParameters:
    """Settings of the SAL balancer.

    `kv_release`: whether KV freed per second is taken gross, or net of what running decodes consume.
    """

    kv_release: Literal["Gross", "Net"] = "Net"


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Operator → picker; `spec` of the LLMRoute that is named as its service, where both names are its own.

    Requests reach the service by OpenAI `model` field (any of `models`), by path `/<namespace>/<name>/v1/…`,
    or by header `x-headrace-service: <namespace>/<name>`.
    """

    namespace: str
    name: str
    models: tuple[str, ...]  # names that this service owns at the gateway; `namespace/name` is always one
    served_name: str  # the short name; vLLM answers to it and to `namespace/name`
    balancer: Balancer = "SAL"
    sal: SalParameters = field(default_factory=SalParameters)
    max_queue_ms: int | None = None  # least estimated wait above this: 429
    slo: Slo = field(default_factory=Slo)
    port: int = 8000  # vLLM's port on each endpoint
    sidecar_port: int = 9400  # the sidecar's
    prefix_caching: bool = True  # the engines keep what they computed for prompts that begin alike
    allowed_clients: tuple[str, ...] | None = None  # who may use the service; None: everyone
    requests_per_minute: int | None = None  # through each Envoy; None: no limit
    requests_per_minute_per_client: int | None = None
    resume: bool = False  # streams go on at another engine when theirs is lost
    drain: Drain = "Wait"  # whether they do so as soon as their engine is being stopped
    rebalance: bool = False  # and where theirs is full or slow
