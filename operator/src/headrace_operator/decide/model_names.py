"""Whose each model name at the gateway is: of the service that it was granted to first, until it lets go.

`NAMESPACE/NAME` is always the service's own. Any other name is granted by being written into the service's
LLMRoute, which the operator alone may write; where that is lost, the service's status says the same. Only of
services to which nothing was granted the oldest comes first. What a pass is about to grant is known to all
others before it waits for anything, so that no two write one name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from headrace_operator import names
from headrace_operator.api import (
    KIND,
    ROUTE_KIND,
    Key,
    LLMService,
    Reason,
    key_of,
    parse_service,
    served_name_of,
)
from headrace_operator.api.bodies import Body
from headrace_operator.errors import RefusedError

_RETRY_SECONDS = 1.0  # until another service's route is read again for a name that is not its own


def served_model_names(service: LLMService) -> tuple[str, ...]:
    """Return the names under which the gateway routes to an accepted service."""
    always = names.qualified(service.key)
    return (always,) if service.served_name == always else (always, service.served_name)


def model_names_in(body: Body) -> set[str]:
    """Return the model names that an object has or asks for.

    A service has what its spec asks for and its status lists, a route its own; other objects have none.
    """
    spec, status = body.get("spec") or {}, body.get("status") or {}
    if body["kind"] == KIND:
        return {served_name_of(body), *(status.get("models") or ())}
    if body["kind"] == ROUTE_KIND:
        return {*(spec.get("models") or ()), *(spec.get("reserved") or ())}
    return set()


def find_rivals(body: Body, services_asking_for: Callable[[str], Iterable[Body]]) -> Iterator[Key]:
    """Yield other services that want a name of this service or route: what becomes of it decides for them."""
    own = key_of(body)
    for name in model_names_in(body) | ({names.qualified(own)} if body["kind"] == KIND else set()):
        for other in services_asking_for(name):
            if key_of(other) != own and served_name_of(other) == name:
                yield key_of(other)


@dataclass(frozen=True, slots=True)
class GrantedNames:
    """Model names that are written into a service's route."""

    models: tuple[str, ...]  # its engines answer to them
    reserved: tuple[str, ...]  # its own, once its engines are replaced
    retry_after: float | None  # seconds; set while a name of its own is still in another service's route


class KnownServices(Protocol):
    """What is known of all services: the cache."""

    def service(self, key: Key) -> Body | None:
        """Return the raw LLMService; None if there is none."""

    def owned(self, key: Key) -> Iterable[Body]:
        """Yield owned objects of a service, pods not included."""

    def services_asking_for(self, name: str) -> Iterable[Body]:
        """Yield LLMServices that may have, or come to have, a model name."""

    def services_routing(self, name: str) -> list[Key]:
        """Return the services in whose routes a model name is."""


class ModelNames:
    """What is granted to whom, and what is being granted. For one event loop; nothing here awaits."""

    def __init__(self, cache: KnownServices) -> None:
        self._cache = cache
        self._taken: dict[str, tuple[Key, str]] = {}  # name → service and its uid
        self._parsed: dict[Key, tuple[str, int, LLMService | None]] = {}

    def take_name(self, name: str, service: LLMService) -> Key | None:
        """Have the name for the service from now on; or whose it is, and nothing changes."""
        holder = self.find_holder(name, service)
        if holder != service.key:
            return holder
        if not self.is_used_elsewhere(name, service):
            self._taken[name] = service.key, service.uid
        return None

    def take_names(self, service: LLMService, served: Iterable[str], later: Iterable[str]) -> GrantedNames:
        """Take the names that are free: `served` by the engines now, `later` once they are replaced."""
        served = tuple(served)
        own = [name for name in dict.fromkeys((*served, *later)) if self.take_name(name, service) is None]
        free = [name for name in own if not self.is_used_elsewhere(name, service)]
        return GrantedNames(
            models=tuple(name for name in free if name in served),
            reserved=tuple(name for name in free if name not in served),
            retry_after=None if free == own else _RETRY_SECONDS,
        )

    def require_served_name(self, service: LLMService) -> None:
        """Take the name that the service is to serve; raise RefusedError if it is another's."""
        holder = self.take_name(service.served_name, service)
        if holder is not None:
            raise RefusedError(
                Reason.MODEL_NAME_CONFLICT,
                f"spec.model.servedName: {service.served_name!r} belongs to LLMService {holder}, which had "
                "it first or is called so: set another servedName",
            )

    def find_holder(self, name: str, service: LLMService) -> Key:
        """Return who holds the name or, if nobody does, the first of those who could."""
        if name == names.qualified(service.key):
            return service.key
        namespace, _, called = name.partition("/")
        if self._cache.service(Key(namespace, called)):
            return Key(namespace, called)
        candidates = (
            self._cache.services_routing(name),
            self._taking(name),
            [key for key in self._told(name) if not self._has_route(key)],
            [service.key, *(other.key for other in self._askers(name, service))],
        )
        return min(next(keys for keys in candidates if keys), key=self._seniority)

    def is_used_elsewhere(self, name: str, service: LLMService) -> bool:
        """Tell whether a name of the service's own is still, or may become, another's at the gateway."""
        return any(key != service.key for key in (*self._cache.services_routing(name), *self._taking(name)))

    def has_pending(self, key: Key) -> bool:
        """Tell whether a pass took names and failed, so that it is not known what came of it."""
        return any(holder == key for holder, _ in self._taken.values())

    def release_pending(self, key: Key) -> None:
        """Forget what was about to be granted to the service: it is written."""
        self._taken = {name: taken for name, taken in self._taken.items() if taken[0] != key}

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a service that is gone."""
        self._parsed.pop(key, None)
        self.release_pending(key)

    def _taking(self, name: str) -> list[Key]:
        key, uid = self._taken.get(name, (None, ""))
        body = self._cache.service(key) if key else None
        return [key] if key and body and body["metadata"]["uid"] == uid else []

    def _told(self, name: str) -> Iterator[Key]:
        """Yield services whose status says that the name is theirs."""
        for body in self._cache.services_asking_for(name):
            if name in ((body.get("status") or {}).get("models") or ()):
                yield key_of(body)

    def _has_route(self, key: Key) -> bool:
        return any(body["kind"] == ROUTE_KIND for body in self._cache.owned(key))

    def _askers(self, name: str, service: LLMService) -> Iterator[LLMService]:
        """Yield other services that would serve the name; one whose spec is wrong would serve none."""
        for body in self._cache.services_asking_for(name):
            other = None if key_of(body) == service.key else self._parse(body)
            if other is not None and other.served_name == name:
                yield other

    def _seniority(self, key: Key) -> tuple[str, Key]:
        body = self._cache.service(key)
        return (body["metadata"].get("creationTimestamp") or "") if body else "", key

    def _parse(self, body: Body) -> LLMService | None:
        """Parse a spec, once per generation."""
        key, metadata = key_of(body), body["metadata"]
        known = self._parsed.get(key)
        if known is None or known[:2] != (metadata["uid"], metadata.get("generation", 1)):
            known = metadata["uid"], metadata.get("generation", 1), _parse_or_none(body)
            self._parsed[key] = known
        return known[2]


def _parse_or_none(body: Body) -> LLMService | None:
    try:
        return parse_service(body)
    except RefusedError:
        return None
