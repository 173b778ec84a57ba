"""ConfigMap NAME-gateway: what the gateway must know, found by its label and never mounted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from headrace_engine.contracts import ContractError, GatewayConfig, SalParameters, dumps, loads
from headrace_operator import engine_arguments, names
from headrace_operator.api import LLMService, slo_document
from headrace_operator.api.base import milliseconds
from headrace_operator.desired.manifest import Manifest, manifest


def gateway_config_map(service: LLMService, models: Iterable[str]) -> Manifest:
    """Routing of the service under the names `models` that it owns at the gateway."""
    routing = service.spec.routing
    config = GatewayConfig(
        namespace=service.key.namespace,
        name=service.key.name,
        models=tuple(models),
        served_name=service.served_name,
        balancer=routing.balancer,
        sal=SalParameters(kv_release=routing.sal.kv_release),
        max_queue_seconds=milliseconds(routing.max_queue) / 1000 if routing.max_queue else None,
        slo=slo_document(service.spec.slo),
        port=names.HTTP_PORT,
        sidecar_port=names.SIDECAR_PORT,
        prefix_caching=_prefix_caching(service),
    )
    return _config_map(service, config)


def _prefix_caching(service: LLMService) -> bool:
    """Whether vLLM keeps prefixes: unless told not to, the last argument counting; on a CPU it never does."""
    options = engine_arguments.read(service.spec.engine.args)
    wanted = engine_arguments.switch(options, "enable-prefix-caching", otherwise=True)
    return wanted and service.spec.accelerator.type == "GPU"


def with_models(service: LLMService, live: Mapping[str, Any], models: Iterable[str]) -> Manifest:
    """The live configuration with other names, for a service whose new spec is not accepted."""
    config = loads(GatewayConfig, live["data"][names.GATEWAY_FILE])
    return _config_map(service, dataclasses.replace(config, models=tuple(models)))


def models_of(live: Mapping[str, Any]) -> tuple[str, ...]:
    """Names that the live configuration claims; none when it cannot be read."""
    text = (live.get("data") or {}).get(names.GATEWAY_FILE)
    try:
        return loads(GatewayConfig, text).models if text else ()
    except ContractError:
        return ()


def _config_map(service: LLMService, config: GatewayConfig) -> Manifest:
    return manifest(
        service,
        "v1",
        "ConfigMap",
        names.gateway_config_map(service.key),
        labels={names.GATEWAY_CONFIG_LABEL: "true"},
        data={names.GATEWAY_FILE: dumps(config)},
    )
