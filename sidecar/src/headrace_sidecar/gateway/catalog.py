"""What the gateway serves: the services that the operator declared and the engines that are ready for each.

Built from whole lists by the source (Kubernetes), read by xDS and by the picker. Values only, so that two
catalogs can be compared and a change seen.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headrace_engine.contracts import GatewayConfig


class ServiceKey(NamedTuple):
    """Names a service; printed `namespace/name`, which is also its Envoy cluster and route name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def authority(address: str, port: int) -> str:
    """An IP address and a port as URLs and Envoy write them."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@dataclass(frozen=True, slots=True)
class Service:
    """One service and the IP addresses of its ready engine pods, sorted.

    `since` is when the service was made known (RFC 3339, so that text order is time order). `unready` are the
    addresses of pods that are not ready, and that nobody has ended.
    """

    config: GatewayConfig
    addresses: tuple[str, ...] = ()
    since: str = ""
    unready: tuple[str, ...] = ()

    @property
    def key(self) -> ServiceKey:
        """The service's name."""
        return ServiceKey(self.config.namespace, self.config.name)

    def with_addresses(self, addresses: Iterable[str], unready: Iterable[str] = ()) -> "Service":
        """This service with these engines."""
        return replace(self, addresses=tuple(sorted(addresses)), unready=tuple(sorted(unready)))


@dataclass(frozen=True, slots=True)
class Catalog:
    """All services by key, in key order."""

    services: Mapping[ServiceKey, Service] = field(default_factory=dict)

    @classmethod
    def of(cls, services: Iterable[Service]) -> "Catalog":
        """A catalog of these services."""
        return cls({service.key: service for service in sorted(services, key=lambda service: service.key)})

    def model_owners(self) -> dict[str, ServiceKey]:
        """Which service answers to each model name.

        `namespace/name` always is its service's own. The operator lets only one service claim any other name;
        if two do all the same, the older keeps it.
        """
        owners = {str(key): key for key in self.services}
        for service in sorted(self.services.values(), key=lambda service: (service.since, service.key)):
            for model in service.config.models:
                owners.setdefault(model, service.key)
        return owners
