"""Brings one LLMService or GPUPool from what is to what should be; safe to run at any time, again and again.

    read own pods ─► open readiness gates ─► parse ─► apply spec ─► follow sidecars ─► status, events

Reads come from the cache that the watches fill; every write is a server-side apply, and at the fixpoint
there is none. A spec that cannot be read changes nothing but the status. Of one whose pods are refused, by
the operator or by the cluster, everything else is applied.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from headrace_operator import metrics
from headrace_operator.api import POOL_KIND, ROUTE_KIND, Key, parse_service
from headrace_operator.api.bodies import JsonObject, is_ending
from headrace_operator.decide.documents import NO_DOCUMENTS, documents_in_force
from headrace_operator.decide.model_names import ModelNames
from headrace_operator.errors import ApiError, SpecInvalidError, TransientError
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.client import Cluster
from headrace_operator.kube.event_recorder import EventRecorder
from headrace_operator.run.apply_spec import SpecApplier
from headrace_operator.run.gateway_key import GatewayKey
from headrace_operator.run.observer import Observer
from headrace_operator.run.outcome import Outcome, soonest
from headrace_operator.run.pod_writes import open_readiness_gates
from headrace_operator.run.pool_planner import PoolPlanner
from headrace_operator.run.reconcile_pool import PoolReconciler
from headrace_operator.run.sidecar_status import SidecarStatuses
from headrace_operator.run.status_writer import StatusWriter
from headrace_operator.run.upgrade import migrate_config_map
from headrace_operator.run.write_throttle import WriteThrottle
from headrace_operator.settings import Settings


@dataclass(slots=True)
class Reconciler:
    """The one loop's body, with what it reads and writes through."""

    settings: Settings
    cache: Cache
    cluster: Cluster
    sidecars: SidecarStatuses
    recorder: EventRecorder
    clock: Callable[[], float]  # seconds
    gateway_key: GatewayKey
    enqueue: Callable[[Key], None]  # has a service looked at
    planner: PoolPlanner
    _throttle: WriteThrottle = field(default_factory=WriteThrottle)
    _model_names: ModelNames = field(init=False)
    _observer: Observer = field(init=False)
    _specs: SpecApplier = field(init=False)
    _statuses: StatusWriter = field(init=False)
    _pools: PoolReconciler = field(init=False)

    def __post_init__(self) -> None:
        self._model_names = ModelNames(self.cache)
        self._observer = Observer(self.cache, self.cluster, self.sidecars)
        self._specs = SpecApplier(
            settings=self.settings,
            cache=self.cache,
            cluster=self.cluster,
            observer=self._observer,
            model_names=self._model_names,
            throttle=self._throttle,
            gateway_key=self.gateway_key,
            clock=self.clock,
        )
        self._statuses = StatusWriter(
            gateway=self.settings.gateway,
            cache=self.cache,
            cluster=self.cluster,
            recorder=self.recorder,
            throttle=self._throttle,
            clock=self.clock,
        )

        self._pools = PoolReconciler(
            settings=self.settings,
            cache=self.cache,
            cluster=self.cluster,
            statuses=self._statuses,
            throttle=self._throttle,
            clock=self.clock,
            enqueue=self.enqueue,
            observer=self._observer,
            planner=self.planner,
        )

    async def reconcile(self, key: Key) -> float | None:
        """Do one pass; seconds until the next, None: when something changes. Raises what failed."""
        if key.kind == POOL_KIND:
            return await self._pools.reconcile(key, _now())
        service = self.cache.service(key)
        if service is None or is_ending(service):
            self._forget(key)
            return None  # owner references clean up
        outcome = await self._do_steps(key, service)
        if outcome.failure is None:
            self._model_names.release_pending(key)
        self._follow_sidecars(key)
        status_due = await self._statuses.write_status(service, self._observer.observe(key), outcome, _now())
        if outcome.failure:
            raise outcome.failure
        return soonest(outcome.requeue_after, status_due)

    async def stop_writing(self) -> None:
        """Let go of what only a writer needs: another replica writes from now on."""
        await self.sidecars.stop()
        await self.planner.stop()
        metrics.drop_all_objects()

    async def _do_steps(self, key: Key, service: JsonObject) -> Outcome:
        """Do all steps up to the status. An error about a single object does not hold up the others."""
        errors: list[ApiError] = []
        pods_due = None
        try:
            await self._read_pending_route(key)
            pods_due = await _try_step(self._observer.find_own_pods(service, self.clock()), errors)
            await _try_step(
                migrate_config_map(service, self._observer.observe(key), self.cluster, self.cache), errors
            )
            await _try_step(
                open_readiness_gates(key, self._observer.observe(key), self.cluster, self.cache, _now()),
                errors,
            )
            outcome = await self._specs.apply_spec(parse_service(service))
        except SpecInvalidError as error:
            outcome = Outcome(refused=error)
        except TransientError as error:
            outcome = Outcome(requeue_after=error.delay)
        except Exception as error:
            outcome = Outcome(failure=error, acceptance_known=False)
        if errors and outcome.failure is None:
            outcome = replace(outcome, failure=errors[0])
        return replace(outcome, requeue_after=soonest(outcome.requeue_after, pods_due))

    async def _read_pending_route(self, key: Key) -> None:
        """Read the route after a pass that failed: the names that it took may be written in spite of that."""
        if self._model_names.has_pending(key):
            live = await self.cluster.read(ROUTE_KIND, key.namespace, key.name)
            if live is None:
                self.cache.discard_owned(key, ROUTE_KIND, key.name)
            else:
                self.cache.put(live)

    def _follow_sidecars(self, key: Key) -> None:
        """Follow the pods until they have confirmed the documents that are in force, and beyond.

        Also those that still start: what they apply is then known when they become ready, so that scaling up
        does not make PolicyApplied false for a moment.
        """
        observed = self._observer.observe(key)
        documents = documents_in_force(key, observed)
        self.sidecars.follow(key, observed.pods if documents else (), documents or NO_DOCUMENTS)

    def _forget(self, key: Key) -> None:
        """Drop what is remembered of a service that is gone."""
        self.sidecars.follow(key, (), NO_DOCUMENTS)
        self._model_names.forget(key)
        self._observer.forget(key)
        self._specs.forget(key)
        self._throttle.forget(key)
        metrics.drop_service(key)


async def _try_step(step: Awaitable[float | None], errors: list[ApiError]) -> float | None:
    """Wait for a step and add to `errors` what the API server says of a single object; raise other errors."""
    try:
        return await step
    except ApiError as error:
        if not error.is_about_object:
            raise
        errors.append(error)
        return None


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
