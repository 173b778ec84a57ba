"""Who owns which model name at the gateway: names are claims, and the oldest service wins.

`NAMESPACE/NAME` is always the service's own, also against an older service that serves a model of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from headrace_operator import names
from headrace_operator.api import Key, LLMService, Reason, key_of, parse, served_name_of
from headrace_operator.errors import RefusedError


def owned_models(service: LLMService) -> tuple[str, ...]:
    """Names under which the gateway routes to an accepted service."""
    always = names.qualified(service.key)
    return (always,) if service.served_name == always else (always, service.served_name)


def check_claim(service: LLMService, others: Iterable[LLMService]) -> None:
    """Raise RefusedError if another service has the stronger claim to the served name."""
    name = service.served_name
    other = stronger_claim(name, service, others)
    if other:
        raise RefusedError(
            Reason.MODEL_NAME_CONFLICT,
            f"spec.model.servedName: {name!r} belongs to LLMService {other.key}, which is older or is "
            "called so: "
            "set another servedName",
        )


def stronger_claim(
    name: str, service: LLMService, others: Iterable[LLMService], *, asked: bool = True
) -> LLMService | None:
    """The other service to which `name` belongs, if it is not this one's.

    A name that its own spec does not ask for any more (not `asked`) is whoever's asks for it.
    """
    if name == names.qualified(service.key):
        return None
    for other in others:
        if names.qualified(other.key) == name:
            return other
        if other.served_name == name and (not asked or _seniority(other) < _seniority(service)):
            return other
    return None


def rivals(body: Mapping[str, Any], claiming: Callable[[str], Iterable[Mapping[str, Any]]]) -> Iterator[Key]:
    """Other services that serve a model of this one's names: what this one does decides whether they may."""
    own = key_of(body)
    for name in {served_name_of(body), names.qualified(own)}:
        for other in claiming(name):
            if key_of(other) != own and served_name_of(other) == name:
                yield key_of(other)


class Claimants:
    """The other services, parsed once per generation."""

    def __init__(self) -> None:
        self._parsed: dict[Key, tuple[str, int, LLMService | None]] = {}

    def others(self, key: Key, bodies: Iterable[Mapping[str, Any]]) -> Iterator[LLMService]:
        """All valid services but `key`; one whose spec is wrong claims nothing until it is corrected."""
        for body in bodies:
            service = None if key_of(body) == key else self._parse(body)
            if service is not None:
                yield service

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._parsed.pop(key, None)

    def _parse(self, body: Mapping[str, Any]) -> LLMService | None:
        key, metadata = key_of(body), body["metadata"]
        known = self._parsed.get(key)
        if known is None or known[:2] != (metadata["uid"], metadata.get("generation", 1)):
            known = metadata["uid"], metadata.get("generation", 1), _parse_or_none(body)
            self._parsed[key] = known
        return known[2]


def _parse_or_none(body: Mapping[str, Any]) -> LLMService | None:
    try:
        return parse(body)
    except RefusedError:
        return None


def _seniority(service: LLMService) -> tuple[str, str, str]:
    return service.created, service.key.namespace, service.key.name
