"""Which group each service takes turns in, and what stands against a pool's groups. Pure.

A service is in the group of the oldest pool that names it; no other pool has it as long as that does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from headrace_engine.contracts.turn_group import TurnGroup
from headrace_operator import names
from headrace_operator.api import GPUPool, Key, Reason
from headrace_operator.api.bodies import Body
from headrace_operator.desired import owner
from headrace_operator.errors import RefusedError


class Membership(NamedTuple):
    """A service's place."""

    pool: GPUPool
    group: str


def membership(service: Key, pools: Iterable[GPUPool]) -> Membership | None:
    """Return the service's place in the pools of its namespace, the oldest first; None if it has none."""
    for pool in pools:
        for group in pool.groups:
            if service.name in group.members:
                return Membership(pool, group.name)
    return None


def turn_group(place: Membership, owned: Callable[[Key, str, str], Body | None]) -> TurnGroup | None:
    """Return how the engines of a group reach its turn server; None until its objects are there.

    `owned` gives an object of a pool, by kind and name.
    """
    pool, group = place
    name = names.turn_server(pool.key, group)
    found = [owned(pool.key, kind, name) for kind in ("Service", "ConfigMap")]
    if not all(body is not None and owner(body) == pool.uid for body in found):
        return None
    service, config_map = found
    host = ((service or {}).get("spec") or {}).get("clusterIP") or ""
    token = known_token(config_map)
    return TurnGroup(host, names.TURNS_PORT, token) if host and token else None


def known_token(config_map: Body | None) -> str:
    """Return the token in a group's ConfigMap; empty if there is none that could be one."""
    token = str(((config_map or {}).get("data") or {}).get(names.TOKEN_FILE) or "")
    try:
        TurnGroup("127.0.0.1", names.TURNS_PORT, token)
    except ValueError:
        return ""
    return token


def check_members_free(pool: GPUPool, pools: Iterable[GPUPool]) -> None:
    """Raise RefusedError if a member is in a group of an older pool."""
    others = [each for each in pools if each.key != pool.key]
    older = [each for each in others if (each.created, each.key) < (pool.created, pool.key)]
    taken = [text for group in pool.groups for text in _taken(pool, group.members, older)]
    if taken:
        raise RefusedError(Reason.MEMBER_TAKEN, "; ".join(taken))


def _taken(pool: GPUPool, members: Iterable[str], older: Collection[GPUPool]) -> Iterator[str]:
    for member in members:
        place = membership(Key(pool.key.namespace, member), older)
        if place is not None:
            yield (
                f"spec.groups: {member} is in group {place.group} of GPUPool {place.pool.key.name}, which is "
                "older and keeps it: take it out of one of them"
            )
