"""Who takes turns with whom, as the cache has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace_engine.contracts import dumps
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_operator import names
from headrace_operator.api import GPUPool, Key, key_of, parse_pools
from headrace_operator.decide.turn_groups import membership, turn_group
from headrace_operator.kube.cache import Cache


def find_turn_group(cache: Cache, service: Key) -> TurnGroup | None:
    """Return the group that the engines of a service take turns with; None if there is none, or none yet."""
    return _group_among(parse_pools(cache.pools(service.namespace)), cache, service)


def services_to_tell(cache: Cache, namespace: str) -> Iterator[Key]:
    """Yield the services of a namespace whose ConfigMap says something else of their group."""
    pools = parse_pools(cache.pools(namespace))
    for body in cache.services(namespace):
        key = key_of(body)
        live = cache.owned_object(key, "ConfigMap", names.policy_config_map(key))
        if live is not None:
            told = (live.get("data") or {}).get(names.TURN_GROUP_FILE)
            wanted = _group_among(pools, cache, key)
            if told != (dumps(wanted) if wanted else None):
                yield key


def _group_among(pools: Iterable[GPUPool], cache: Cache, service: Key) -> TurnGroup | None:
    place = membership(service, pools)
    return turn_group(place, cache.owned_object) if place else None
