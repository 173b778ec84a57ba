"""Brings one LLMService from what is to what should be; safe to run at any time, any number of times.

    parse ─► check ─► desired ─► plan ─► carry out ─► status ─► events

Reads come from the cache that the watches fill; every write is a server-side apply, and at the fixpoint
there is none. A spec that cannot be read changes nothing but the status. Of one whose pods are refused, by
the operator or by the cluster, everything else is carried out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from headrace_operator import metrics
from headrace_operator.accept import check, objections
from headrace_operator.act import Against, Hand, carry_out
from headrace_operator.api import (
    KIND,
    ROUTE_KIND,
    Key,
    LLMService,
    is_paused,
    key_of,
    parse,
    policy_document,
    replicas_of,
)
from headrace_operator.cache import Cache
from headrace_operator.claims import Claims, owned_models
from headrace_operator.cluster import Cluster
from headrace_operator.desired import content_hash, desired, models_of, owner, reserved_of, without_models
from headrace_operator.engines import Engines
from headrace_operator.errors import ApiError, RefusedError, SpecInvalidError, TransientError, all_of
from headrace_operator.events import transitions
from headrace_operator.observe import Observed, observe
from headrace_operator.ownership import Ownership
from headrace_operator.pace import Pace
from headrace_operator.plan import Apply, Nudge, next_nudge, plan
from headrace_operator.policy_status import policy_in_force
from headrace_operator.recorder import Recorder
from headrace_operator.refusals import Refusals
from headrace_operator.rollout import answering, as_it_runs, rollout
from headrace_operator.routing import newly_routed, routed_condition
from headrace_operator.settings import Settings
from headrace_operator.status import CarriedOut, Subject, status, untold_in
from headrace_operator.upgrade import carry_over

_YIELDED_AGAIN = 1.0  # seconds until another service's route is worth a look for a name that is not its own


@dataclass(frozen=True, slots=True)
class _Pass:
    """What came of one pass."""

    carried_out: CarriedOut = CarriedOut.NOTHING
    again: float | None = None  # seconds
    refused: RefusedError | None = None
    failure: Exception | None = None
    judged: bool = True  # whether it is known if the spec is accepted


@dataclass(slots=True)
class Reconciler:
    """The one loop's body, with what it reads and writes through."""

    settings: Settings
    cache: Cache
    cluster: Cluster
    engines: Engines
    recorder: Recorder
    clock: Callable[[], float]  # seconds
    _nudged: dict[Key, dict[str, float]] = field(default_factory=dict)  # pod uid → when, by `clock`
    _pace: Pace = field(default_factory=Pace)
    _refusals: Refusals = field(default_factory=Refusals)
    _ownership: Ownership = field(init=False)
    _claims: Claims = field(init=False)

    def __post_init__(self) -> None:
        self._claims = Claims(self.cache)
        self._ownership = Ownership(self.cluster)

    async def reconcile(self, key: Key) -> float | None:
        """One pass. Returns the seconds until the next, None: when something changes. Raises what failed."""
        body = self.cache.service(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self._forget(key)
            return None  # owner references clean up
        done, look, hindrances = _Pass(), None, list[ApiError]()

        async def aside(step: Awaitable[float | None]) -> float | None:
            """What the API server says of one object must not hold up all the rest."""
            try:
                return await step
            except ApiError as error:
                if not error.of_the_object:
                    raise
                hindrances.append(error)
                return None

        try:
            await self._learn_route(key)
            look = await aside(self._learn_pods(body))
            await aside(carry_over(body, self._observe(key), self.cluster, self.cache))
            await aside(self._open_gates(key))
            done = await self._act(parse(body))
        except SpecInvalidError as error:
            done = _Pass(refused=error)
        except TransientError as error:
            done = _Pass(again=error.delay)
        except Exception as error:
            done = _Pass(failure=error, judged=False)
        if hindrances and done.failure is None:
            done = replace(done, failure=hindrances[0])
        if done.failure is None:
            self._claims.release(key)
        self._follow(key)
        held_back = await self._report(body, done)
        if done.failure:
            raise done.failure
        return _earlier(done.again, held_back, look)

    async def _learn_route(self, key: Key) -> None:
        """After a pass that failed, what of the names that it took was written in spite of that."""
        if self._claims.pending(key):
            live = await self.cluster.read(ROUTE_KIND, key.namespace, key.name)
            if live is None:
                self.cache.discard(key, ROUTE_KIND, key.name)
            else:
                self.cache.put(live)

    async def _learn_pods(self, body: dict[str, Any]) -> float | None:
        """Find out which of the pods that bear the service's label are its own; seconds until a next look."""
        key = key_of(body)
        live = observe(self.cache.owned(key), (), {}).deployment(key.name)
        own = live if live is not None and owner(live) == body["metadata"]["uid"] else None
        return await self._ownership.learn(key, own, self.cache.pods(key), self.clock())

    async def _open_gates(self, key: Key) -> None:
        """Say of pods that the gateway routes to them, whatever becomes of the spec, also if paused."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        refused: list[ApiError] = []
        for pod in newly_routed(key, self._observe(key)):
            try:
                self.cache.put(
                    await self.cluster.set_condition(key.namespace, pod.name, pod.uid, routed_condition(now))
                )
                metrics.ACTIONS.labels("route", "Pod").inc()
            except ApiError as error:
                if error.code in {404, 409}:  # the pod is gone
                    continue
                if not error.of_the_object:
                    raise
                refused.append(error)
        if refused:
            raise refused[0]

    async def _act(self, service: LLMService) -> _Pass:
        """Make the owned objects as the spec asks, or where that is refused, all but the pods' template."""
        objection: RefusedError | None = None
        try:
            check(service, self.settings)
            self._claims.require(service)
        except RefusedError as error:
            objection = error
        if service.paused:
            return _Pass(again=objection.again if objection else None, refused=objection)
        if objection is not None:
            return await self._keep_up(service, objection)
        live = await self._live_deployment(service, self._observe(service.key))
        try:
            again, _ = await self._carry_out(service, service, live)
            return _Pass(CarriedOut.ALL, again)
        except RefusedError as error:
            return await self._keep_up(service, error)
        except ApiError as error:
            if not error.of_the_object:
                raise
            return await self._keep_up(service, error)

    async def _keep_up(self, service: LLMService, objection: RefusedError | ApiError) -> _Pass:
        """Carry out what needs no other pods, for a service of which something stands against the rest."""
        errors: list[Exception] = [objection]
        carried_out, again = CarriedOut.NOTHING, None
        try:
            # As it is now: what met the objection may have come as far as to write it.
            live = await self._live_deployment(service, self._observe(service.key))
            kept = as_it_runs(service, live)
            withheld = objections(kept, self.settings) if kept else {}  # of what was accepted once
            if kept is None or ROUTE_KIND in withheld:
                await self._yield_names(service, self._observe(service.key))
            if kept is not None:
                again, against = await self._carry_out(kept, service, live, apart=True, withheld=withheld)
                errors += against.values()
                if not any(kind == "ConfigMap" for kind, _ in against):
                    carried_out = CarriedOut.LIVE
        except TransientError as error:
            again = error.delay
        except Exception as error:
            errors.append(error)
        refused = [error for error in errors if isinstance(error, RefusedError)]
        failures = (error for error in errors if not isinstance(error, RefusedError))
        again = _earlier(again, *(error.again for error in refused))
        return _Pass(carried_out, again, all_of(refused), next(failures, None))

    async def _carry_out(
        self,
        service: LLMService,
        asked: LLMService,
        live: Any,
        *,
        apart: bool = False,
        withheld: Mapping[str, RefusedError] = MappingProxyType({}),
    ) -> tuple[float | None, Against]:
        """Make the owned objects as `service` says; seconds until a pod is to be nudged or an object healed.

        `asked`: the same as its spec has it. The rest is as of `act.carry_out`.
        """
        observed = self._observe(service.key)
        carried, progress = rollout(service, live, observed)
        serving = answering(carried, live)
        served = owned_models(serving)
        names = dict.fromkeys((*served, *owned_models(service)))  # the latter once its engines are replaced
        mine = [name for name in names if self._claims.take(name, asked) is None]
        free = [name for name in mine if not self._claims.used_elsewhere(name, asked)]
        models, reserved = [n for n in free if n in served], [n for n in free if n not in served]
        wanted = desired(carried, self.settings, models, live, progress, reserved=reserved)
        nudged, now = self._nudged.get(service.key, {}), self.clock()
        policy = policy_document(service).hash
        planned = plan(wanted, observed, policy, nudged, now)
        actions, held_back = self._pace.split(service.key, planned, now)
        against = await carry_out(self._hand(service), actions, apart=apart, withheld=withheld)
        nudged |= {action.pod.uid: now for action in actions if isinstance(action, Nudge)}
        present = {pod.uid for pod in observed.pods}
        self._nudged[service.key] = {uid: when for uid, when in nudged.items() if uid in present}
        told = policy_in_force(service.key, self._observe(service.key))
        due = next_nudge(self._observe(service.key), policy, nudged) if told and told.hash == policy else None
        yielded = None if free == mine else _YIELDED_AGAIN
        return _earlier(held_back, yielded, None if due is None else max(0.0, due - now)), against

    def _hand(self, service: LLMService) -> Hand:
        return Hand(service, self.cluster, self.cache, self._pace, self._refusals, self.clock())

    async def _yield_names(self, service: LLMService, observed: Observed) -> None:
        """A refused service keeps what it has, but for names at the gateway that are another's."""
        live = observed.objects.get((ROUTE_KIND, service.key.name))
        if live is None:
            return
        granted = (*models_of(live), *reserved_of(live))
        lost = [model for model in granted if self._claims.holder(model, service) != service.key]
        if lost:
            action = Apply(without_models(service, live, lost), creates=False)
            await carry_out(self._hand(service), [action])

    async def _live_deployment(self, service: LLMService, observed: Observed) -> Any:
        """The Deployment that runs, looked up if not cached: to render it anew could restart engines."""
        known = observed.deployment(service.key.name)
        if known is not None:
            return known
        found = await self.cluster.read("Deployment", service.key.namespace, service.key.name)
        return found if found and owner(found) == service.uid else None

    def _follow(self, key: Key) -> None:
        """Follow the pods until they have confirmed the policy that is in force, and beyond.

        Also those that still start: what they apply is then known when they become ready, so that scaling up
        does not make PolicyApplied false for a moment.
        """
        observed = self._observe(key)
        document = policy_in_force(key, observed)
        self.engines.follow(key, observed.pods if document else (), document.hash if document else "")

    async def _report(self, body: dict[str, Any], done: _Pass) -> float | None:
        """Write the status if it changed, then tell what changed in it; seconds until it may be written."""
        key, metadata = key_of(body), body["metadata"]
        previous = (self.cache.service(key) or body).get("status") or {}
        subject = Subject(
            key,
            generation=metadata.get("generation", 1),
            desired=replicas_of(body),
            paused=is_paused(metadata),
            carried_out=done.carried_out,
            previous=previous,
            judged=done.judged,
        )
        observed, time = self._observe(key), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        current = status(
            subject, observed, done.refused, _words(done.failure), gateway=self.settings.gateway, now=time
        )
        metrics.show(key, current)
        written = current.model_dump(mode="json", by_alias=True, exclude_none=True)
        untold = untold_in(observed, time)
        if written == previous:
            return untold
        content, now = content_hash(written), self.clock()
        wait = self._pace.wait(key, KIND, content, now)
        if wait > 0.0:
            return _earlier(wait, untold)
        self.cache.put_status(await self.cluster.apply_status(KIND, key.namespace, key.name, written))
        self._pace.wrote(key, KIND, content, now)
        for happening in transitions(previous, current):
            await self.recorder.record(body, happening)
        return untold

    def _observe(self, key: Key) -> Observed:
        pods = self._ownership.own(key, self.cache.pods(key))
        return observe(self.cache.owned(key), pods, self.engines.reports(key))

    async def stand_by(self) -> None:
        """Another replica writes from now on: what only a writer needs is let go."""
        await self.engines.stop()
        metrics.forget_all()

    def _forget(self, key: Key) -> None:
        """The service is gone."""
        self.engines.follow(key, (), "")
        self._nudged.pop(key, None)
        self._claims.forget(key)
        self._ownership.forget(key)
        self._pace.forget(key)
        self._refusals.forget(key)
        metrics.forget(key)


def _words(failure: Exception | None) -> str:
    """What went wrong; empty if nothing did."""
    return "" if failure is None else str(failure) or type(failure).__name__


def _earlier(*waits: float | None) -> float | None:
    """The shortest of the waits that there are."""
    return min((wait for wait in waits if wait is not None), default=None)
