"""What services have of their groups, as the cache has it: turns with others, and the devices of all."""

from __future__ import annotations

from collections.abc import Iterator

from headrace_engine.contracts import dumps
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_operator import names
from headrace_operator.api import Key, LLMService, Reason, key_of, parse_pools, parse_service
from headrace_operator.api.bodies import Body
from headrace_operator.decide.group_devices import check_memory, claim_of_group, share_of, suits
from headrace_operator.decide.rollout import service_as_running
from headrace_operator.decide.turn_groups import Membership, membership, turn_group
from headrace_operator.desired import owner
from headrace_operator.desired.history import running_inputs
from headrace_operator.desired.inputs import claim_in
from headrace_operator.errors import RefusedError, SpecInvalidError
from headrace_operator.kube.cache import Cache


class Groups:
    """The groups of a namespace's pools, as they are when this is made."""

    def __init__(self, cache: Cache, namespace: str) -> None:
        self._cache = cache
        self._namespace = namespace
        self._pools = parse_pools(cache.pools(namespace))
        self._wanted_claims: dict[tuple[Key, str], str | None] = {}  # by pool and group

    def turn_group(self, service: Key) -> TurnGroup | None:
        """Return whom the engines of a service take turns with; None if there is nobody, or not yet."""
        place = membership(service, self._pools)
        return turn_group(place, self._cache.owned_object) if place else None

    def claim(self, service: LLMService) -> str | None:
        """Return the ResourceClaim whose devices the service shares; None if it has its own.

        As long as nothing better is there it keeps the one that its pods have, if that is what it asks for.
        """
        place = membership(service.key, self._pools)
        if place is None:
            return None
        claims = {
            claim["metadata"]["name"]: claim
            for claim in self._cache.owned(place.pool.key)
            if claim["kind"] == "ResourceClaim" and owner(claim) == place.pool.uid and suits(claim, service)
        }
        if not claims:
            return None
        name = self._wanted_claim(place)
        if name in claims and "deletionTimestamp" not in claims[name]["metadata"]:
            return name
        running = claim_in(self._running_inputs(service.key))
        return running if running in claims else None

    def check_room(self, service: LLMService) -> None:
        """Raise RefusedError if the service has no room beside those that run on its group's devices."""
        place = membership(service.key, self._pools)
        if place is None or service.group_claim is None:
            return
        running = map(self._as_running, (m for m in place.group.members if m != service.key.name))
        beside = [each for each in running if each and each.group_claim == service.group_claim]
        check_memory(place, map(share_of, (service, *beside)))

    def services_to_tell(self) -> Iterator[Key]:
        """Yield the services whose objects say something else of their group."""
        for body in self._cache.services(self._namespace):
            key = key_of(body)
            live = self._cache.owned_object(key, "ConfigMap", names.policy_config_map(key))
            if live is not None:
                told = (live.get("data") or {}).get(names.TURN_GROUP_FILE)
                wanted = self.turn_group(key)
                if told != (dumps(wanted) if wanted else None) or self._has_other_claim(body):
                    yield key

    def _wanted_claim(self, place: Membership) -> str | None:
        """Name the claim that a group should have; None if it should have none, or is refused."""
        group = place.pool.key, place.group.name
        if group not in self._wanted_claims:
            try:
                wanted = claim_of_group(place, members_of(self._cache, place))
            except RefusedError:
                wanted = None
            self._wanted_claims[group] = wanted["metadata"]["name"] if wanted else None
        return self._wanted_claims[group]

    def _has_other_claim(self, service: Body) -> bool:
        key = key_of(service)
        inputs = self._running_inputs(key)
        if inputs is None or (claim_in(inputs) is None and membership(key, self._pools) is None):
            return False
        try:
            return claim_in(inputs) != self.claim(parse_service(service))
        except SpecInvalidError:
            return False

    def _as_running(self, member: str) -> LLMService | None:
        """Return a member with the inputs that its pods have; None if they are not known."""
        key = Key(self._namespace, member)
        body = self._cache.service(key)
        try:
            return service_as_running(parse_service(body), self._deployment(key)) if body else None
        except SpecInvalidError:
            return None

    def _running_inputs(self, key: Key) -> Body | None:
        return running_inputs(self._deployment(key))

    def _deployment(self, key: Key) -> Body | None:
        return self._cache.owned_object(key, "Deployment", key.name)


def members_of(cache: Cache, place: Membership) -> list[LLMService]:
    """Return the members of a group that exist, in its order. Raises RefusedError if one is not valid."""
    found = []
    for member in place.group.members:
        body = cache.service(Key(place.pool.key.namespace, member))
        try:
            found += [parse_service(body)] if body else []
        except SpecInvalidError as error:
            raise RefusedError(
                Reason.INVALID_SPEC, f"group {place.group.name}: LLMService {member} is not valid: {error}"
            ) from error
    return found
