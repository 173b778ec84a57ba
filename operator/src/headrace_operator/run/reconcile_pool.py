"""Brings one GPUPool from what is to what should be; safe to run at any time, any number of times.

    parse ─► devices and turn servers of its groups ─► plan ─► status, events ─► its members' passes

The members' own passes tell their engines: each service keeps one writer.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from headrace_operator import metrics, names
from headrace_operator.api import GPUPool, Key, is_paused, key_of, parse_pool, parse_pools
from headrace_operator.api.bodies import JsonObject, is_ending
from headrace_operator.api.gpu_pool import Group, placement_in
from headrace_operator.decide.group_devices import claim_of_group
from headrace_operator.decide.lost_claims import find_lost_claims
from headrace_operator.decide.moves import NO_MOVES
from headrace_operator.decide.observation import Observation, observe
from headrace_operator.decide.plan import plan_actions, plan_pool_deletions
from headrace_operator.decide.pool_status import build_pool_status
from headrace_operator.decide.refusals import Refusals
from headrace_operator.decide.turn_groups import Membership, check_members_free, known_token
from headrace_operator.desired import Manifest
from headrace_operator.desired.manifest import with_content_hash
from headrace_operator.desired.resource_claims import is_allocated
from headrace_operator.desired.turn_server import Anchor, tolerations_of, turn_server_objects
from headrace_operator.errors import RefusedError, TransientError
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.client import Cluster
from headrace_operator.run.execute import Context, execute_actions
from headrace_operator.run.groups import Groups, claims_of_pool, members_of
from headrace_operator.run.observer import Observer
from headrace_operator.run.outcome import soonest
from headrace_operator.run.pool_planner import PoolPlanner, PoolView
from headrace_operator.run.status_writer import StatusWriter
from headrace_operator.run.write_throttle import WriteThrottle
from headrace_operator.settings import Settings

_TOKEN_BYTES = 32
_MOVE_SECONDS = 5.0  # between looks at services that are moved


@dataclass(slots=True)
class PoolReconciler:
    """Reconciles GPUPools. `enqueue` has a service looked at."""

    settings: Settings
    cache: Cache
    cluster: Cluster
    statuses: StatusWriter
    throttle: WriteThrottle
    clock: Callable[[], float]  # seconds
    enqueue: Callable[[Key], None]
    observer: Observer
    planner: PoolPlanner
    _refusals: Refusals = field(default_factory=Refusals)
    _tokens: dict[tuple[Key, str], str] = field(default_factory=dict)  # made for new groups

    async def reconcile(self, key: Key, now: str) -> float | None:
        """Do one pass at `now` (RFC 3339); seconds until the next, None: when something changes.

        Raises what failed.
        """
        body = self.cache.pool(key)
        if body is None or is_ending(body):
            self._forget(key)
            self._tell_services(key.namespace)
            return None  # owner references clean up
        pool: GPUPool | None = None
        problem: Exception | None = None
        due: float | None = None
        try:
            pool = parse_pool(body)
            check_members_free(pool, parse_pools(self.cache.pools(key.namespace)))
            if not is_paused(body["metadata"]):
                due = await self._apply(pool, datetime.fromisoformat(now).timestamp())
        except TransientError as error:
            due = error.delay
        except RefusedError as error:
            problem, due = error, error.retry_after
        except Exception as error:
            problem = error
        self._follow(key, pool)
        status_due = await self._write_status(body, pool, problem, now)
        self._tell_services(key.namespace)
        if problem is not None and not isinstance(problem, RefusedError):
            raise problem
        return soonest(due, status_due)

    async def _apply(self, pool: GPUPool, time: float) -> float | None:
        """Write what differs at `time`, in unix seconds; seconds until there may be more to write."""
        observed, now = self._observe(pool.key), self.clock()
        lost = find_lost_claims(self._pods(pool.key), time)
        wanted = self._wanted(pool, lost.names)
        planned = [
            *plan_actions(wanted, observed),
            *plan_pool_deletions(wanted, observed, pool.uid, lost.names),
        ]
        due, throttled = self.throttle.split_due_actions(pool.key, planned, now)
        await execute_actions(
            Context(pool, self.cluster, self.cache, self.throttle, self._refusals, now), due
        )
        return soonest(throttled, lost.due and lost.due - time)

    def _pods(self, pool: Key) -> Iterator[JsonObject]:
        """Yield the pods that may have devices of a pool."""
        for key in (pool, *map(key_of, self.cache.services(pool.namespace))):
            yield from self.cache.pods(key)

    def _wanted(self, pool: GPUPool, lost: Collection[str]) -> tuple[Manifest, ...]:
        return tuple(manifest for group in pool.groups for manifest in self._wanted_of(pool, group, lost))

    def _wanted_of(self, pool: GPUPool, group: Group, lost: Collection[str]) -> tuple[Manifest, ...]:
        members = members_of(self.cache, Membership(pool, group))
        there = claims_of_pool(self.cache, pool.key)
        claim = claim_of_group(Membership(pool, group), members, there, lost)
        token = self._token(pool.key, group.name)
        if claim is None:
            return turn_server_objects(pool, group, token, self.settings)
        name = claim["metadata"]["name"]
        live = self.cache.owned_object(pool.key, "ResourceClaim", name)
        anchor = Anchor(name, is_allocated(live), tolerations_of(members))
        return with_content_hash(claim), *turn_server_objects(pool, group, token, self.settings, anchor)

    def _token(self, key: Key, group: str) -> str:
        live = self.cache.owned_object(key, "ConfigMap", names.turn_server(key, group))
        return known_token(live) or self._tokens.setdefault((key, group), secrets.token_hex(_TOKEN_BYTES))

    def _observe(self, key: Key) -> Observation:
        return observe(self.cache.owned(key), (), {})

    async def _write_status(
        self, body: JsonObject, pool: GPUPool | None, problem: Exception | None, now: str
    ) -> float | None:
        """Write the status if it changed; seconds until it may be written. Raises ApiError."""
        key = key_of(body)
        seen = {**body, "status": (self.cache.pool(key) or body).get("status") or {}}
        services = {each["metadata"]["name"] for each in self.cache.services(key.namespace)}
        answer = self.planner.answer(key, pool.generation) if pool else None
        moves = Groups(self.cache, key.namespace).moves(pool) if pool else NO_MOVES
        current = build_pool_status(
            seen, pool, self._observe(key), services, problem=problem, answer=answer, moves=moves, now=now
        )
        metrics.show_pool(key, current)
        due = await self.statuses.write_changes(seen, seen["status"], current)
        replaced = current.placement != placement_in(seen["status"])
        return soonest(
            due, 0.0 if replaced else None, _MOVE_SECONDS if moves.moving or moves.waiting else None
        )

    def _follow(self, key: Key, pool: GPUPool | None) -> None:
        """Have plans made for a pool that asks for one."""
        if pool is None or pool.placement is None:
            self.planner.forget(key)
        else:
            named = [service.name for service in pool.placement.services]
            self.planner.follow(key, pool.generation, lambda: self._look(key, named))

    async def _look(self, key: Key, named: Sequence[str]) -> PoolView:
        """Look at a pool, and at those of the services that it names which exist. Raises ApiError."""
        keys = [Key(key.namespace, name) for name in named]
        services = {each.name: body for each in keys if (body := self.cache.service(each))}
        for body in services.values():  # an operator that was just started knows none of their pods yet
            await self.observer.find_own_pods(body, self.clock())
        return PoolView(
            self.cache.pool(key) or {},
            services,
            {
                each.name: {pod.uid: pod.ip for pod in self.observer.observe(each).ready if pod.ip}
                for each in keys
                if each.name in services
            },
        )

    def _tell_services(self, namespace: str) -> None:
        for key in Groups(self.cache, namespace).services_to_tell():
            self.enqueue(key)

    def _forget(self, key: Key) -> None:
        metrics.drop_pool(key)
        self.planner.forget(key)
        self._tokens = {place: token for place, token in self._tokens.items() if place[0] != key}
        self._refusals.forget(key)
        self.throttle.forget(key)
