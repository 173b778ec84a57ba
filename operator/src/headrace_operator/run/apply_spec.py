"""Makes the owned objects of one service as its spec asks, or where that is refused, all but its pods.

check ─► assess rollout ─► take model names ─► desired objects ─► plan ─► execute ─► refresh pods
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from headrace_operator.api import ROUTE_KIND, Key, LLMService
from headrace_operator.api.bodies import Body
from headrace_operator.decide.accept import check_accepted, find_objections
from headrace_operator.decide.documents import Documents, documents_in_force, wanted_documents
from headrace_operator.decide.model_names import ModelNames, served_model_names
from headrace_operator.decide.observation import Observation
from headrace_operator.decide.plan import Apply, plan_actions
from headrace_operator.decide.policy_refresh import PolicyRefreshes
from headrace_operator.decide.refusals import Refusals
from headrace_operator.decide.rollout import assess_rollout, service_as_running, service_as_served
from headrace_operator.decide.service_status import Executed
from headrace_operator.desired import desired_objects, models_of, reserved_of, without_models
from headrace_operator.errors import ApiError, RefusedError, TransientError, combine_refusals
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.client import Cluster
from headrace_operator.run.execute import Context, Objections, execute_actions, is_policy_written
from headrace_operator.run.gateway_key import GatewayKey
from headrace_operator.run.groups import Groups
from headrace_operator.run.observer import Observer
from headrace_operator.run.outcome import Outcome, soonest
from headrace_operator.run.pod_writes import refresh_pods
from headrace_operator.run.write_throttle import WriteThrottle
from headrace_operator.settings import Settings


@dataclass(slots=True)
class SpecApplier:
    """Applies specs, and remembers per service what was written, refreshed and refused lately."""

    settings: Settings
    cache: Cache
    cluster: Cluster
    observer: Observer
    model_names: ModelNames
    throttle: WriteThrottle
    gateway_key: GatewayKey
    clock: Callable[[], float]  # seconds
    _refreshes: PolicyRefreshes = field(default_factory=PolicyRefreshes)
    _refusals: Refusals = field(default_factory=Refusals)

    async def apply_spec(self, service: LLMService) -> Outcome:
        """Apply the spec, unless the service is paused. Raises ApiError if the API server is in trouble."""
        groups = Groups(self.cache, service.key.namespace)
        service = groups.placed(service)
        objection = self._find_objection(service, groups)
        if service.paused:
            return Outcome(requeue_after=objection.retry_after if objection else None, refused=objection)
        if objection is not None:
            return await self._apply_without_new_pods(service, groups, objection)
        live = await self.observer.read_deployment(service)
        try:
            requeue_after, _ = await self._apply_objects(service, service, groups, live)
            return Outcome(Executed.ALL, requeue_after)
        except RefusedError as error:
            return await self._apply_without_new_pods(service, groups, error)
        except ApiError as error:
            if not error.is_about_object:
                raise
            return await self._apply_without_new_pods(service, groups, error)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a service that is gone."""
        self._refreshes.forget(key)
        self._refusals.forget(key)

    def _find_objection(self, service: LLMService, groups: Groups) -> RefusedError | None:
        """Return why this operator does not accept the spec; None if it does."""
        try:
            check_accepted(service, self.settings)
            self.model_names.require_served_name(service)
            groups.check_room(service)
        except RefusedError as error:
            return error
        return None

    async def _apply_without_new_pods(
        self, service: LLMService, groups: Groups, objection: RefusedError | ApiError
    ) -> Outcome:
        """Apply what needs no other pods, for a service of which something stands against the rest."""
        errors: list[Exception] = [objection]
        executed, requeue_after = Executed.NOTHING, None
        try:
            # Read again: what met the objection may have come as far as to write the Deployment.
            live = await self.observer.read_deployment(service)
            running = service_as_running(service, live)
            withheld = find_objections(running, self.settings) if running else {}  # of what was accepted once
            if running is None or ROUTE_KIND in withheld:
                await self._drop_lost_names(service)
            if running is not None:
                requeue_after, objections = await self._apply_objects(
                    running, service, groups, live, independently=True, withheld=withheld
                )
                errors += objections.values()
                if is_policy_written(objections):
                    executed = Executed.LIVE
        except TransientError as error:
            requeue_after = error.delay
        except Exception as error:
            errors.append(error)
        refused = [error for error in errors if isinstance(error, RefusedError)]
        failures = (error for error in errors if not isinstance(error, RefusedError))
        requeue_after = soonest(requeue_after, *(error.retry_after for error in refused))
        return Outcome(executed, requeue_after, combine_refusals(refused), next(failures, None))

    async def _apply_objects(
        self,
        service: LLMService,
        asked: LLMService,
        groups: Groups,
        live: Body | None,
        *,
        independently: bool = False,
        withheld: Mapping[str, RefusedError] = MappingProxyType({}),
    ) -> tuple[float | None, Objections]:
        """Make the owned objects as `service` says; seconds until a write or a refresh is due.

        `asked`: the same as its spec has it. `live`: the Deployment. The rest is as of `execute_actions`.
        """
        observed, now = self.observer.observe(service.key), self.clock()
        carried, progress = assess_rollout(service, live, observed)
        served = served_model_names(service_as_served(carried, live))
        turn_group = groups.turn_group(service.key)
        granted = self.model_names.take_names(asked, served, later=served_model_names(service))
        wanted = desired_objects(
            carried,
            self.settings,
            granted.models,
            live,
            progress,
            reserved=granted.reserved,
            modulus=self.gateway_key.modulus,
            turn_group=turn_group,
        )
        planned = plan_actions(wanted, observed)
        due, throttled = self.throttle.split_due_actions(service.key, planned, now)
        context = self._context(service)
        objections = await execute_actions(context, due, independently=independently, withheld=withheld)
        documents = wanted_documents(service, turn_group)
        refresh_due = await self._refresh_documents(service.key, documents, observed, objections)
        return soonest(throttled, granted.retry_after, refresh_due), objections

    async def _refresh_documents(
        self, key: Key, wanted: Documents, observed: Observation, objections: Objections
    ) -> float | None:
        """Have pods that have other documents read the new ones; seconds until the next refresh is due."""
        now = self.clock()
        refreshes = self._refreshes.plan_refreshes(key, observed, wanted, now)
        if is_policy_written(objections):  # else pods have nothing else to read
            await refresh_pods(key, refreshes, self.cluster, self.cache)
        self._refreshes.record_refreshes(key, (each.pod for each in refreshes), observed, now)
        current = self.observer.observe(key)
        if documents_in_force(key, current) != wanted:
            return None
        return self._refreshes.seconds_until_next(key, current, wanted, now)

    async def _drop_lost_names(self, service: LLMService) -> None:
        """Take out of the route of a refused service what now belongs to another; the rest it keeps."""
        live = self.observer.observe(service.key).objects.get((ROUTE_KIND, service.key.name))
        if live is None:
            return
        routed = (*models_of(live), *reserved_of(live))
        lost = [name for name in routed if self.model_names.find_holder(name, service) != service.key]
        if lost:
            action = Apply(without_models(service, live, lost), creates=False)
            await execute_actions(self._context(service), [action])

    def _context(self, service: LLMService) -> Context:
        return Context(service, self.cluster, self.cache, self.throttle, self._refusals, self.clock())
