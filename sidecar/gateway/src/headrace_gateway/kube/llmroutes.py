"""LLMRoutes as the picker reads them: only such as the operator can have written, and within bounds.

One that is refused leaves its service as it was. Who may write LLMRoutes is for RBAC to say; that a route is
owned by the LLMService of its name is looked at here too, since garbage collection ends any that claims an
owner who does not exist.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace_engine.contracts import ContractError, GatewayConfig, decode
from headrace_gateway import metrics
from headrace_gateway.catalog import Service, ServiceKey

log = logging.getLogger(__name__)

GROUP, VERSION, PLURAL = "headrace.dev", "v1alpha1", "llmroutes"
OWNER = "LLMService"
MAX_MODELS = 16
MAX_NAME_LENGTH = 253  # an LLMService allows less
MAX_REQUESTS = 10_000_000  # a minute; Envoy counts to some 400 times as many
MESSAGE_LENGTH = 1024

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReadRoute:
    """An LLMRoute as it was read: its manifest and, if it cannot be used, why."""

    manifest: Json
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Good:
    """The last configuration of a route that could be used."""

    uid: str
    generation: int
    config: GatewayConfig


class RouteReader:
    """Reads LLMRoutes into services; remembers the last good configuration of each."""

    def __init__(self) -> None:
        self.routes: dict[ServiceKey, ReadRoute] = {}
        self._good: dict[ServiceKey, _Good] = {}

    def read(self, routes: Iterable[Json]) -> list[Service]:
        """Read all services, still without engines."""
        services, found = [], {}
        for route in routes:
            metadata = route["metadata"]
            key = ServiceKey(metadata["namespace"], metadata["name"])
            found[key] = self._read_route(key, route)
            good = self._good.get(key)
            if good is not None:
                services.append(Service(good.config, since=metadata.get("creationTimestamp") or ""))
        for gone in self._good.keys() - found.keys():
            del self._good[gone]
        self.routes = found
        return services

    def _read_route(self, key: ServiceKey, route: Json) -> ReadRoute:
        uid, generation = route["metadata"].get("uid", ""), route["metadata"].get("generation", 1)
        good, before = self._good.get(key), self.routes.get(key)
        if good is not None and good.uid != uid:
            del self._good[key]  # another object of that name
            good = None
        try:
            check_owner(route)
            if good is None or good.generation != generation:
                self._good[key] = _Good(uid, generation, parse_route(key, route))
        except ContractError as error:
            text = str(error)[:MESSAGE_LENGTH]
            if before is None or before.error != text:
                metrics.CONFIG_ERRORS.inc()
                log.warning("LLMRoute %s is not used: %s", key, text)
            return ReadRoute(route, text)
        return ReadRoute(route)


def check_owner(route: Json) -> None:
    """Raise ContractError unless the LLMService of the route's name owns it.

    One that was accepted and then lost its owner (`--cascade=orphan`) goes on as it is.
    """
    metadata = route["metadata"]
    owners = metadata.get("ownerReferences") or ()
    if not owners and accepted_generation(route) == metadata.get("generation", 1):
        return
    for each in owners:
        group = str(each.get("apiVersion", "")).partition("/")[0]
        if (group, each.get("kind"), each.get("name")) == (GROUP, OWNER, metadata["name"]):
            return
    raise ContractError(
        f"it is not owned by {OWNER} {metadata['name']}: only Headrace's operator makes routes"
    )


def accepted_generation(route: Json) -> int | None:
    """Return the generation that a picker accepted last; None if it refused, or never saw it."""
    for condition in (route.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Accepted" and condition.get("status") == "True":
            generation: int = condition.get("observedGeneration", 0)
            return generation
    return None


def parse_route(key: ServiceKey, route: Json) -> GatewayConfig:
    """Read the configuration in the route of service `key`; raises ContractError."""
    spec = route.get("spec")
    if not isinstance(spec, dict):
        raise ContractError("it has no spec")
    config = decode(GatewayConfig, {**spec, "namespace": key.namespace, "name": key.name}, "spec")
    for field, port in (("port", config.port), ("sidecarPort", config.sidecar_port)):
        if not 1 <= port <= 65535:
            raise ContractError(f"spec.{field} is {port}, not a port from 1 to 65535")
    if len(config.models) > MAX_MODELS:
        raise ContractError(f"spec.models has {len(config.models)} names, more than {MAX_MODELS}")
    for field, names in (("models", config.models), ("allowedClients", config.allowed_clients or ())):
        for name in names:
            if not (0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()):
                raise ContractError(
                    f"spec.{field}: {name[:64]!r} is not 1 to {MAX_NAME_LENGTH} printable characters"
                )
    limits = {
        "requestsPerMinute": config.requests_per_minute,
        "requestsPerMinutePerClient": config.requests_per_minute_per_client,
    }
    for field, limit in limits.items():
        if limit is not None and not 1 <= limit <= MAX_REQUESTS:
            raise ContractError(f"spec.{field} is {limit}, not a number from 1 to {MAX_REQUESTS}")
    return replace(config, models=tuple(dict.fromkeys(config.models)))
