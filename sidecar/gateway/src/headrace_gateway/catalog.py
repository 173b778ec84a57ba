"""What the gateway serves: the services that the operator declared and the engines that are ready for each.

Built from whole lists by the source (Kubernetes), read by xDS and by the picker. Values only, so that two
catalogs can be compared and a change seen.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headrace_engine.contracts import GatewayConfig


class ServiceKey(NamedTuple):
    """Names a service; printed `namespace/name`, which is also its Envoy cluster and route name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


Publish = Callable[["Catalog"], None]


class Engine(NamedTuple):
    """The IP address of an engine, and of its pod UID and revision; each empty if it is not known."""

    address: str
    uid: str = ""
    revision: str = ""


def authority(address: str, port: int) -> str:
    """Write an IP address and a port as URLs and Envoy do."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


@dataclass(frozen=True, slots=True)
class Service:
    """One service and the IP addresses of its ready engine pods, sorted.

    `since` is when the service was made known (RFC 3339, so that text order is time order). `unready` are the
    addresses of pods that are not ready, and that nobody has ended. `pods` are the UIDs of all of them: an
    address may pass from one pod to the next. `terminating` are the addresses of pods that were ended and may
    still serve. `revisions` tells by address which pods are of one template: those have one model and one
    vLLM.
    """

    config: GatewayConfig
    addresses: tuple[str, ...] = ()
    since: str = ""
    unready: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    terminating: tuple[str, ...] = ()
    revisions: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> ServiceKey:
        """The key that names this service."""
        return ServiceKey(self.config.namespace, self.config.name)

    def with_engines(
        self, ready: Set[Engine], unready: Set[Engine] = frozenset(), terminating: Set[Engine] = frozenset()
    ) -> "Service":
        """Return this service with these engines."""
        known = ready | unready
        taken = {engine.address for engine in known}
        ended = {engine for engine in terminating if engine.address not in taken}
        return replace(
            self,
            addresses=_addresses(ready),
            unready=_addresses(unready),
            pods=tuple(sorted({engine.uid for engine in known if engine.uid})),
            terminating=_addresses(ended),
            revisions={engine.address: engine.revision for engine in known | ended if engine.revision},
        )

    def engines_to_leave(self) -> list[str]:
        """Return the authorities of terminating engines whose streams shall go on at one that is ready."""
        if not (self.config.resume and self.config.drain == "Move"):
            return []
        ready = {self.revisions[address] for address in self.addresses if address in self.revisions}
        return [
            authority(address, self.config.port)
            for address in self.terminating
            if self.revisions.get(address) in ready
        ]


def _addresses(engines: Set[Engine]) -> tuple[str, ...]:
    return tuple(sorted({engine.address for engine in engines}))


@dataclass(frozen=True, slots=True)
class Catalog:
    """All services by key, in key order."""

    services: Mapping[ServiceKey, Service] = field(default_factory=dict)

    @classmethod
    def build(cls, services: Iterable[Service]) -> "Catalog":
        """Make a catalog of these services, sorted by key."""
        return cls({service.key: service for service in sorted(services, key=lambda service: service.key)})

    def engines_to_leave(self) -> list[str]:
        """Return the engines of all services that streams shall leave."""
        return [engine for service in self.services.values() for engine in service.engines_to_leave()]

    def model_owners(self) -> dict[str, ServiceKey]:
        """Return which service answers to each model name.

        `namespace/name` always is its service's own. The operator lets only one service claim any other name;
        if two do all the same, the older keeps it.
        """
        owners = {str(key): key for key in self.services}
        for service in sorted(self.services.values(), key=lambda service: (service.since, service.key)):
            for model in service.config.models:
                owners.setdefault(model, service.key)
        return owners
