"""LLMRoute: what the gateway must know of one service, written by the operator, reported on by the picker.

Its `spec` is the contract `GatewayConfig` but for namespace and name, which are the object's own. Users
write LLMServices: a route that speaks for a service must come from the operator alone.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from headrace_engine.contracts.gateway_config import Balancer, Drain
from headrace_operator.api.base import ATOMIC, Block, Client, Integer, RequestsPerMinute, Word, list_map
from headrace_operator.api.status import StatusCondition, seen

ROUTE_KIND = "LLMRoute"
ROUTE_PLURAL = "llmroutes"
MOST_PODS = 2048  # replicas and what a rollout may start on top

Port = Annotated[Integer, Field(ge=1, le=65_535)]
Milliseconds = Annotated[Integer, Field(ge=0, le=2**53)]
Uid = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class RoutePerRequest(Block):
    """The tightest targets that a client may ask for."""

    ttft_ms: Milliseconds | None = seen("TTFT in milliseconds; unset: the service's own.")
    tpot_ms: Milliseconds | None = seen("TPOT in milliseconds; unset: the service's own.")
    e2e_ms: Milliseconds | None = seen("End-to-end latency in milliseconds; unset: the service's own.")


class RouteSlo(Block):
    """Targets of each request, in milliseconds."""

    ttft_ms: Milliseconds | None = seen("Time to first token; unset: no target.")
    tpot_ms: Milliseconds | None = seen("TPOT in milliseconds; unset: no target.")
    e2e_ms: Milliseconds | None = seen("End-to-end latency in milliseconds; unset: no target.")
    e2e_scale_percent: Milliseconds | None = seen(
        "End-to-end latency as a percentage of what the request would take alone; instead of e2eMs."
    )
    per_request: RoutePerRequest | None = seen("What clients may ask for; unset: nothing.")


class RouteSal(Block):
    """Settings of the SAL balancer."""

    kv_release: Literal["Gross", "Net"] = seen(
        "Whether KV freed per second counts gross, or net of what running decodes consume.", "Net"
    )


class RouteSpec(Block):
    """What the operator tells the gateway of one service; a change is live."""

    models: tuple[Word, ...] = seen(
        "Names in requests that reach the service.",
        ...,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    reserved: tuple[Word, ...] = seen(
        "Names that are the service's too, but not served yet: its engines answer to others until they are "
        "replaced.",
        (),
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    served_name: Word = seen("The name that its engines answer to.", ...)
    balancer: Balancer = seen("How requests are spread over engines.", "SAL")
    sal: RouteSal = seen("Settings of SAL; unused with other balancers.", RouteSal())
    max_queue_ms: Milliseconds | None = seen(
        "Requests that would wait longer than this, in milliseconds, are refused with 429; unset: none are."
    )
    slo: RouteSlo = seen("Targets of each request.", RouteSlo())
    port: Port = seen("Where each engine listens.", 8000)
    sidecar_port: Port = seen("Where each engine's sidecar listens.", 9400)
    allowed_clients: tuple[Client, ...] | None = seen(
        "Clients that may use the service; unset: everyone.",
        None,
        min_length=1,
        max_length=64,
        json_schema_extra=ATOMIC,
    )
    requests_per_minute: RequestsPerMinute | None = seen("Through each Envoy; unset: no limit.", None)
    requests_per_minute_per_client: RequestsPerMinute | None = seen(
        "Of each client, through each Envoy; unset: no limit.", None
    )
    prefix_caching: bool = seen("Whether engines keep what they computed of prompts that begin alike.", True)
    resume: bool = seen("Whether streams go on at another engine when theirs is lost.", False)
    drain: Drain = seen("Move: they do so as soon as their engine is being stopped.", "Wait")
    rebalance: bool = seen("Whether they also do so where their engine is full or slow.", False)


class RouteStatus(Block):
    """What the gateway makes of the route, as the picker that leads last saw it."""

    observed_generation: int = seen("Generation of the spec that this status is about.", 0, ge=0)
    envoys: int = seen("Envoys that take their configuration from the picker.", 0, ge=0)
    pods: tuple[Uid, ...] = seen(
        "UIDs of engine pods that every one of these Envoys has; each finds by itself which of them serve.",
        (),
        max_length=MOST_PODS,
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    conditions: tuple[StatusCondition, ...] = seen(
        "Accepted: the picker can use the route. Programmed: every Envoy has it.",
        (),
        max_length=8,
        json_schema_extra=list_map("type"),
    )
