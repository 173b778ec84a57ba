"""What services have of their pools, as the cache has it: turns with others, and where their engines are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace_engine.contracts import dumps
from headrace_engine.contracts.turn_group import TurnGroup
from headrace_operator import names
from headrace_operator.api import (
    GPUPool,
    Key,
    LLMService,
    Reason,
    key_of,
    parse_pools,
    parse_service,
    replicas_of,
)
from headrace_operator.api.bodies import Body, is_ending
from headrace_operator.api.placement import PlacedService
from headrace_operator.decide.group_devices import check_memory, claim_of_group, suits
from headrace_operator.decide.lost_claims import claims_of
from headrace_operator.decide.moves import Mover, Moves, plan_moves
from headrace_operator.decide.observation import has_ended
from headrace_operator.decide.places import place_of, put, put_as_planned, running_place
from headrace_operator.decide.rollout import is_complete, is_surging, service_as_running
from headrace_operator.decide.turn_groups import Membership, membership, pool_of, turn_group
from headrace_operator.desired import owner
from headrace_operator.desired.history import rolled_back, running_inputs
from headrace_operator.desired.inputs import claim_in, inputs_hash
from headrace_operator.errors import RefusedError, SpecInvalidError
from headrace_operator.kube.cache import Cache


class Groups:
    """The groups of a namespace's pools, as they are when this is made."""

    def __init__(self, cache: Cache, namespace: str) -> None:
        self._cache = cache
        self._namespace = namespace
        self._pools = parse_pools(cache.pools(namespace))
        self._wanted_claims: dict[tuple[Key, str], str | None] = {}  # by pool and group
        self._moves: dict[Key, Moves] = {}  # by pool

    def turn_group(self, service: Key) -> TurnGroup | None:
        """Return whom the engines of a service take turns with; None if there is nobody, or not yet."""
        place = membership(service, self._pools)
        return turn_group(place, self._cache.owned_object) if place else None

    def placed(self, service: LLMService) -> LLMService:
        """Return the service with its engines where they shall be now, as its pool has it."""
        pool = pool_of(service.key, self._pools)
        planned = pool.find_placed(service.key.name) if pool else None
        if pool is None or planned is None:
            return replace(service, group_claim=self._claim(service))
        wanted = put_as_planned(service, planned)
        wanted = replace(wanted, group_claim=self._claim(wanted))
        running = running_place(service, self._deployment(service.key))
        name, moves = service.key.name, self.moves(pool)
        if running is None or name in moves.free:
            return replace(wanted, surges=name in moves.surging)
        return put(service, moves.place_meanwhile(name, running, wanted.replicas))

    def replicas(self, service: Body) -> int:
        """Return how many engines a raw service, which may not be valid, shall have."""
        key = key_of(service)
        pool = pool_of(key, self._pools)
        parsed = self._find_service(key) if pool and pool.find_placed(key.name) else None
        return self.placed(parsed).replicas if parsed else replicas_of(service)

    def moves(self, pool: GPUPool) -> Moves:
        """Return which services of a pool are moved now."""
        if pool.key not in self._moves:
            movers = [mover for placed in pool.placed if (mover := self._mover(pool, placed))]
            gpus = pool.placement.gpus.count if pool.placement else None
            self._moves[pool.key] = plan_moves(movers, gpus)
        return self._moves[pool.key]

    def check_room(self, service: LLMService) -> None:
        """Raise RefusedError if the service has no room beside those that run on its group's devices."""
        place = membership(service.key, self._pools)
        if place is None or service.group_claim is None:
            return
        running = map(self._as_running, (m for m in place.group.members if m != service.key.name))
        beside = [each for each in running if each and each.group_claim == service.group_claim]
        check_memory(place, (service, *beside))

    def services_to_tell(self) -> Iterator[Key]:
        """Yield the services whose objects say something else of their group."""
        for body in self._cache.services(self._namespace):
            key = key_of(body)
            live = self._cache.owned_object(key, "ConfigMap", names.policy_config_map(key))
            if live is not None:
                told = (live.get("data") or {}).get(names.TURN_GROUP_FILE)
                wanted = self.turn_group(key)
                if told != (dumps(wanted) if wanted else None) or self._is_elsewhere(key):
                    yield key

    def _mover(self, pool: GPUPool, placed: PlacedService) -> Mover | None:
        """Return a service that a pool places; None if it does not exist or is not valid."""
        key = Key(self._namespace, placed.name)
        service, live = self._find_service(key), self._deployment(key)
        if service is None or pool_of(key, self._pools) != pool:
            return None
        wanted, group = put_as_planned(service, placed), pool.group_of(key.name)
        claim = self._live_claim(Membership(pool, group), wanted) if group else None
        wanted = replace(wanted, group_claim=claim)
        gone_back = rolled_back(live)
        return Mover(
            name=placed.name,
            wanted=place_of(wanted) if group is None or claim else None,
            runs=running_place(service, live),
            settled=live is not None and self._is_settled(key, live),
            max_unavailable=service.spec.disruption.max_unavailable,
            surges=live is not None and is_surging(live),
            given_up=gone_back is not None and gone_back.inputs == inputs_hash(wanted),
        )

    def _is_settled(self, key: Key, live: Body) -> bool:
        pods = [pod for pod in self._cache.pods(key) if not (has_ended(pod) or self._is_given_up(pod))]
        if any(map(is_ending, pods)):
            return False  # it still has its devices, and their memory
        return is_complete(live) or not (live["spec"]["replicas"] or pods)

    def _claim(self, service: LLMService) -> str | None:
        """Return the ResourceClaim whose devices the service shares; None if it has its own.

        As long as nothing better is there it keeps the one that its pods have, if that is what it asks for.
        """
        place = membership(service.key, self._pools)
        if place is None:
            return None
        if name := self._live_claim(place, service):
            return name
        running = claim_in(self._running_inputs(service.key))
        return running if running in self._claims(place, service) else None

    def _claims(self, place: Membership, service: LLMService) -> dict[str, Body]:
        """Return the claims of a pool whose devices are what the service asks for, by name."""
        return {
            claim["metadata"]["name"]: claim
            for claim in claims_of_pool(self._cache, place.pool.key)
            if owner(claim) == place.pool.uid and suits(claim, service)
        }

    def _live_claim(self, place: Membership, service: LLMService) -> str | None:
        """Name the claim that the service's group should have; None if there is none that stays."""
        name = self._wanted_claim(place)
        claim = self._claims(place, service).get(name or "")
        return name if claim is not None and not is_ending(claim) else None

    def _wanted_claim(self, place: Membership) -> str | None:
        """Name the claim that a group should have; None if it should have none, or is refused."""
        group = place.pool.key, place.group.name
        if group not in self._wanted_claims:
            try:
                live = claims_of_pool(self._cache, place.pool.key)
                wanted = claim_of_group(place, members_of(self._cache, place), live)
            except RefusedError:
                wanted = None
            self._wanted_claims[group] = wanted["metadata"]["name"] if wanted else None
        return self._wanted_claims[group]

    def _is_given_up(self, pod: Body) -> bool:
        """Tell whether nobody waits for a pod's end: its claim was deleted, and its node may be dead."""
        if not is_ending(pod):
            return False
        claims = (claim for pool in self._pools for claim in claims_of_pool(self._cache, pool.key))
        stay = {claim["metadata"]["name"] for claim in claims if not is_ending(claim)}
        return not claims_of(pod) <= stay

    def _is_elsewhere(self, key: Key) -> bool:
        """Tell whether a service's engines are not where they shall be now."""
        inputs = self._running_inputs(key)
        if inputs is None or (claim_in(inputs) is None and pool_of(key, self._pools) is None):
            return False
        service = self._find_service(key)
        if service is None:
            return False
        wanted = self.placed(service)
        if wanted.placed_replicas is None:
            return claim_in(inputs) != wanted.group_claim
        return running_place(service, self._deployment(key)) != place_of(wanted)

    def _as_running(self, member: str) -> LLMService | None:
        """Return a member with the inputs that its pods have; None if they are not known."""
        key = Key(self._namespace, member)
        service = self._find_service(key)
        return service_as_running(service, self._deployment(key)) if service else None

    def _find_service(self, key: Key) -> LLMService | None:
        """Return a service; None if it does not exist or is not valid."""
        body = self._cache.service(key)
        try:
            return parse_service(body) if body else None
        except SpecInvalidError:
            return None

    def _running_inputs(self, key: Key) -> Body | None:
        return running_inputs(self._deployment(key))

    def _deployment(self, key: Key) -> Body | None:
        return self._cache.owned_object(key, "Deployment", key.name)


def claims_of_pool(cache: Cache, pool: Key) -> list[Body]:
    """Return the claims that are labelled as a pool's."""
    return [each for each in cache.owned(pool) if each["kind"] == "ResourceClaim"]


def members_of(cache: Cache, place: Membership) -> list[LLMService]:
    """Return the members of a group that exist, in its order. Raises RefusedError if one is not valid."""
    found = []
    for member in place.group.members:
        body = cache.service(Key(place.pool.key.namespace, member))
        try:
            found += [put_as_planned(parse_service(body), place.pool.find_placed(member))] if body else []
        except SpecInvalidError as error:
            raise RefusedError(
                Reason.INVALID_SPEC, f"group {place.group.name}: LLMService {member} is not valid: {error}"
            ) from error
    return found
