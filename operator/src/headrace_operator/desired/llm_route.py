"""LLMRoute NAME: what the gateway must know of the service."""

from __future__ import annotations

from collections.abc import Iterable

from headrace_engine.contracts import GatewayConfig, SalParameters, encode
from headrace_operator import names
from headrace_operator.api import API_VERSION, ROUTE_KIND, LLMService, engine_arguments, slo_document
from headrace_operator.api.base import milliseconds
from headrace_operator.api.bodies import Body
from headrace_operator.desired.manifest import Manifest, Owner, manifest


def route(service: LLMService, models: Iterable[str], reserved: Iterable[str] = ()) -> Manifest:
    """Make the service's route under its names `models`; `reserved`: others of its own, not served yet."""
    made = route_of(service, gateway_config(service, models))
    return {**made, "spec": {**made["spec"], **_reserving(reserved)}}


def gateway_config(service: LLMService, models: Iterable[str]) -> GatewayConfig:
    """Make the routing of the service under these names."""
    routing = service.spec.routing
    return GatewayConfig(
        namespace=service.key.namespace,
        name=service.key.name,
        models=tuple(models),
        served_name=service.served_name,
        balancer=routing.balancer,
        sal=SalParameters(kv_release=routing.sal.kv_release),
        max_queue_ms=milliseconds(routing.max_queue) if routing.max_queue else None,
        slo=slo_document(service.spec.slo),
        port=names.HTTP_PORT,
        sidecar_port=names.SIDECAR_PORT,
        prefix_caching=_keeps_prefixes(service),
        allowed_clients=routing.access.allowed_clients,
        requests_per_minute=routing.limits.requests_per_minute,
        requests_per_minute_per_client=routing.limits.requests_per_minute_per_client,
        resume=routing.resume == "Auto",
        drain=service.spec.disruption.drain,
        rebalance=routing.rebalance == "Auto",
    )


def _keeps_prefixes(service: LLMService) -> bool:
    """Tell whether vLLM keeps prefixes: unless told not to, the last argument counting; on a CPU never."""
    options = engine_arguments.parse_arguments(service.spec.engine.args)
    wanted = engine_arguments.is_switched_on(options, "enable-prefix-caching", otherwise=True)
    return wanted and service.spec.accelerator.type == "GPU"


def route_of(owner: Owner, config: GatewayConfig) -> Manifest:
    """Make a route of a configuration; its name says which service it is for."""
    spec = {key: value for key, value in encode(config).items() if key not in {"namespace", "name"}}
    return manifest(owner, API_VERSION, ROUTE_KIND, owner.key.name, spec=spec)


def with_models(owner: Owner, live: Body, models: Iterable[str]) -> Manifest:
    """Return the live route with other names, for a service whose new spec is not accepted."""
    kept = set(models)
    spec = {**live["spec"], "models": [name for name in models_of(live) if name in kept]}
    spec.pop("reserved", None)
    spec |= _reserving(name for name in reserved_of(live) if name in kept)
    return manifest(owner, API_VERSION, ROUTE_KIND, owner.key.name, spec=spec)


def _reserving(names_kept: Iterable[str]) -> dict[str, list[str]]:
    """Return the field, if there is anything in it: the API server takes a list away with its last item."""
    reserved = list(names_kept)
    return {"reserved": reserved} if reserved else {}


def models_of(live: Body) -> tuple[str, ...]:
    """Return the names under which the live route is served."""
    return tuple((live.get("spec") or {}).get("models") or ())


def reserved_of(live: Body) -> tuple[str, ...]:
    """Return the names that the live route keeps from others beside these."""
    return tuple((live.get("spec") or {}).get("reserved") or ())
