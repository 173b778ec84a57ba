"""Which clients may use a service, by the names of their API keys.

The filter that checks keys writes the client's name into a header that no client can set. A service that
allows some only is out of reach of all others, and of everyone while the gateway asks for no keys.
"""

import re
from collections.abc import Iterable, Mapping

from headrace_gateway.catalog import ServiceKey
from headrace_gateway.headers import CLIENT_HEADER
from headrace_gateway.replies import Reply
from headrace_gateway.xds.direct_answers import Match

Allowed = Mapping[ServiceKey, tuple[str, ...] | None]


def restrict_match(match: Match, clients: Iterable[str] | None) -> Match:
    """Narrow a match to requests of these clients; None for everyone's."""
    if clients is None:
        return match
    regex = "|".join(map(re.escape, sorted(clients)))
    header = {"name": CLIENT_HEADER, "string_match": {"safe_regex": {"regex": regex}}}
    return {**match, "headers": [*match.get("headers", ()), header]}


def denied_reply(service: str) -> Reply:
    """Make the answer to a client that may not use this service."""
    told = f"the client `%REQ({CLIENT_HEADER})%` is not allowed to use the service {service}"
    return Reply(403, "access_denied", told)


def group_clients(allowed: Allowed) -> list[tuple[tuple[str, ...], frozenset[ServiceKey]]]:
    """Group the clients by the services that each may use beside those that everyone may."""
    seen: dict[str, set[ServiceKey]] = {}
    for key, clients in allowed.items():
        for client in clients or ():
            seen.setdefault(client, set()).add(key)
    groups: dict[frozenset[ServiceKey], list[str]] = {}
    for client, keys in sorted(seen.items()):
        groups.setdefault(frozenset(keys), []).append(client)
    return [(tuple(clients), keys) for keys, clients in groups.items()]
