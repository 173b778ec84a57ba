"""Which group each service takes turns in, and what stands against a pool's groups. Pure.

A service is in the group of the oldest pool that names it; no other pool has it as long as that does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from headrace_engine.contracts.turn_group import TurnGroup
from headrace_operator import names
from headrace_operator.api import GPUPool, Key, Reason
from headrace_operator.api.bodies import Body
from headrace_operator.api.gpu_pool import Group
from headrace_operator.desired import owner
from headrace_operator.errors import RefusedError


class Membership(NamedTuple):
    """A service's place."""

    pool: GPUPool
    group: Group

    def __str__(self) -> str:
        return f"group {self.group.name} of GPUPool {self.pool.key.name}"


def membership(service: Key, pools: Iterable[GPUPool]) -> Membership | None:
    """Return the service's place in the pools of its namespace, the oldest first; None if it has none."""
    pool = pool_of(service, pools)
    group = pool.group_of(service.name) if pool else None
    return Membership(pool, group) if pool and group else None


def pool_of(service: Key, pools: Iterable[GPUPool]) -> GPUPool | None:
    """Return the pool that has the service, of those of its namespace, the oldest first; None if none has."""
    return next((pool for pool in pools if service.name in pool.services), None)


def turn_group(place: Membership, owned: Callable[[Key, str, str], Body | None]) -> TurnGroup | None:
    """Return how the engines of a group reach its turn server; None until its objects are there.

    `owned` gives an object of a pool, by kind and name.
    """
    pool, group = place
    name = names.turn_server(pool.key, group.name)
    found = [owned(pool.key, kind, name) for kind in ("Service", "ConfigMap")]
    if not all(body is not None and owner(body) == pool.uid for body in found):
        return None
    service, config_map = found
    host = ((service or {}).get("spec") or {}).get("clusterIP") or ""
    token = known_token(config_map)
    return TurnGroup(host, names.TURNS_PORT, token, group.turn_order) if host and token else None


def known_token(config_map: Body | None) -> str:
    """Return the token in a group's ConfigMap; empty if there is none that could be one."""
    token = str(((config_map or {}).get("data") or {}).get(names.TOKEN_FILE) or "")
    try:
        TurnGroup("127.0.0.1", names.TURNS_PORT, token)
    except ValueError:
        return ""
    return token


def services_named_in(pool: Body) -> set[str]:
    """Return the names of services that a raw GPUPool, which may not be valid, groups or makes a plan for."""
    spec = pool.get("spec") or {}
    planned = (spec.get("placement") or {}).get("services") or ()
    return {member for group in spec.get("groups") or () for member in group.get("members") or ()} | {
        service["name"] for service in planned
    }


def check_members_free(pool: GPUPool, pools: Collection[GPUPool]) -> None:
    """Raise RefusedError if another of the pools, the oldest first, has a service of this one."""
    taken = []
    for name in pool.services:
        member = Key(pool.key.namespace, name)
        first = pool_of(member, pools)
        if first is not None and first.key != pool.key:
            place = membership(member, pools) or f"GPUPool {first.key.name}"
            field = "groups" if pool.group_of(name) else "placement.services"
            taken.append(
                f"spec.{field}: {name} is in {place}, which is older and keeps it: take it out of one of them"
            )
    if taken:
        raise RefusedError(Reason.MEMBER_TAKEN, "; ".join(taken))
