"""Writes the status of a service or pool when it changed, then Events and metrics of what changed in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace_operator import metrics
from headrace_operator.api import PoolStatus, ServiceStatus, is_paused, key_of, replicas_of
from headrace_operator.api.bodies import Body
from headrace_operator.decide.degradation import seconds_until_crash_expires
from headrace_operator.decide.observation import Observation
from headrace_operator.decide.service_events import service_events
from headrace_operator.decide.service_status import Subject, build_status
from headrace_operator.desired import content_hash
from headrace_operator.kube.cache import Cache
from headrace_operator.kube.client import Cluster
from headrace_operator.kube.event_recorder import EventRecorder
from headrace_operator.run.groups import Groups
from headrace_operator.run.outcome import Outcome, soonest
from headrace_operator.run.write_throttle import WriteThrottle


@dataclass(frozen=True, slots=True)
class StatusWriter:
    """Reports the outcome of each reconcile."""

    gateway: str  # its URL
    cache: Cache
    cluster: Cluster
    recorder: EventRecorder
    throttle: WriteThrottle
    clock: Callable[[], float]  # seconds

    async def write_status(
        self, service: Body, observed: Observation, outcome: Outcome, now: str
    ) -> float | None:
        """Write the status of a raw LLMService at `now` (RFC 3339) if it changed. Raises ApiError.

        Returns the seconds until it may be written, or until something in it ceases to be true by itself.
        """
        key = key_of(service)
        previous = (self.cache.service(key) or service).get("status") or {}
        current = self._build_status(service, previous, observed, outcome, now)
        metrics.show_service(key, current)
        expires = seconds_until_crash_expires(observed, now)
        return soonest(await self.write_changes(service, previous, current), expires)

    async def write_changes(
        self, owner: Body, previous: Body, current: ServiceStatus | PoolStatus
    ) -> float | None:
        """Write the status of a raw LLMService or GPUPool, with Events, if it is not as it was written last.

        Returns the seconds until it may be written. Raises ApiError.
        """
        key, content = key_of(owner), current.as_body()
        if content == previous:
            return None
        digest, moment = content_hash(content), self.clock()
        wait = self.throttle.seconds_until_allowed(key, key.kind, digest, moment)
        if wait > 0.0:
            return wait
        self.cache.put_status(await self.cluster.apply_status(key.kind, key.namespace, key.name, content))
        self.throttle.record_write(key, key.kind, digest, moment)
        for event in service_events(previous, current):
            await self.recorder.record(owner, event)
        return None

    def _build_status(
        self, service: Body, previous: Body, observed: Observation, outcome: Outcome, now: str
    ) -> ServiceStatus:
        metadata = service["metadata"]
        desired = Groups(self.cache, metadata["namespace"]).replicas(service)
        subject = Subject(
            key_of(service),
            generation=metadata.get("generation", 1),
            desired=desired,
            paused=is_paused(metadata),
            executed=outcome.executed,
            previous=previous,
            acceptance_known=outcome.acceptance_known,
            waits_to_move=not desired and replicas_of(service) > 0,
        )
        failure = _describe_failure(outcome.failure)
        return build_status(subject, observed, outcome.refused, failure, gateway=self.gateway, now=now)


def _describe_failure(failure: Exception | None) -> str:
    """Say what went wrong; empty if nothing did."""
    return "" if failure is None else str(failure) or type(failure).__name__
