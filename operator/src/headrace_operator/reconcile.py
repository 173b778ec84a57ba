"""Brings one LLMService from what is to what should be; safe to run at any time, any number of times.

    parse ─► observe ─► desired ─► plan ─► act ─► status ─► events

Reads come from the cache that the watches fill; every write is a server-side apply, and at the fixpoint
there is none. A spec that cannot be accepted changes nothing but the status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headrace_operator import names
from headrace_operator.accept import check
from headrace_operator.api import KIND, PAUSED, Key, LLMService, Reason, ServiceStatus, parse, policy_document
from headrace_operator.cache import Cache
from headrace_operator.claims import Claimants, owned_models, stronger_claim
from headrace_operator.cluster import Cluster
from headrace_operator.desired import desired, models_of, without_models
from headrace_operator.engines import Engines
from headrace_operator.errors import ApiError, RefusedError, TransientError
from headrace_operator.events import transitions
from headrace_operator.metrics import ACTIONS
from headrace_operator.observe import Observed, observe
from headrace_operator.plan import Action, Apply, Delete, Nudge, next_nudge, plan
from headrace_operator.recorder import Recorder
from headrace_operator.settings import Settings
from headrace_operator.status import Subject, policy_in_force, status

# What was refused may become possible by a change elsewhere, such as the end of a service of the same name.
_REFUSED_AGAIN = 15.0
_COLLECTED_AGAIN = 2.0


@dataclass(slots=True)
class Reconciler:
    """The one loop's body, with what it reads and writes through."""

    settings: Settings
    cache: Cache
    cluster: Cluster
    engines: Engines
    recorder: Recorder
    clock: Callable[[], float]
    _nudged: dict[Key, dict[str, float]] = field(default_factory=dict)  # pod uid → when, by `clock`
    _claimants: Claimants = field(default_factory=Claimants)

    async def reconcile(self, key: Key) -> float | None:
        """One pass. Returns the seconds until the next, None: when something changes. Raises ApiError."""
        body = self.cache.service(key)
        if body is None or "deletionTimestamp" in body["metadata"]:
            self.engines.follow(key, (), "")
            self._nudged.pop(key, None)
            self._claimants.forget(key)
            return None  # owner references clean up
        refused, failure, again = None, None, None
        try:
            await self._act(parse(body))
        except RefusedError as error:
            refused, again = error, _REFUSED_AGAIN
        except TransientError as error:
            again = error.delay
        except ApiError as error:
            failure = error
        again = _earlier(again, self._follow(key))
        await self._report(body, refused, str(failure or ""))
        if failure:
            raise failure
        return again

    def _observe(self, key: Key) -> Observed:
        return observe(self.cache.owned(key), self.cache.pods(key), self.engines.reports(key))

    def _others(self, key: Key) -> Iterator[LLMService]:
        return self._claimants.others(key, self.cache.services())

    async def _act(self, service: LLMService) -> None:
        """Make the owned objects as the spec asks. Raises RefusedError before anything is changed."""
        if service.paused:
            return
        observed = self._observe(service.key)
        try:
            check(service, self._others(service.key), self.settings)
        except RefusedError:
            await self._yield_names(service, observed)
            raise
        live = await self._live_deployment(service, observed)
        wanted = desired(service, self.settings, owned_models(service), live)
        nudged = self._nudged.setdefault(service.key, {})
        actions = plan(wanted, observed, policy_document(service).hash, nudged, self.clock())
        await self._check_free(service, actions)
        for action in actions:
            if not isinstance(action, Nudge):
                await self._do(service, action)
        nudges = [self._nudge(service.key, action) for action in actions if isinstance(action, Nudge)]
        await asyncio.gather(*nudges)

    async def _yield_names(self, service: LLMService, observed: Observed) -> None:
        """A refused service keeps what it has, but for names at the gateway that an older one claims."""
        live = observed.objects.get(("ConfigMap", names.gateway_config_map(service.key)))
        if live is None:
            return
        lost = [m for m in models_of(live) if stronger_claim(m, service, self._others(service.key))]
        if lost:
            await self._do(service, Apply(without_models(service, live, lost), creates=False))

    async def _live_deployment(self, service: LLMService, observed: Observed) -> Any:
        """The Deployment that runs, looked up if not cached: to render it anew could restart engines."""
        known = observed.deployment(service.key.name)
        if known is not None:
            return known
        found = await self.cluster.read("Deployment", service.key.namespace, service.key.name)
        return found if found and _owner(found) == service.uid else None

    async def _check_free(self, service: LLMService, actions: Iterable[Action]) -> None:
        """Take no object of someone else's, as an apply would; nothing is written before this."""
        for action in actions:
            if not isinstance(action, Apply) or not action.creates:
                continue
            kind, name = action.manifest["kind"], action.manifest["metadata"]["name"]
            found = await self.cluster.read(kind, service.key.namespace, name)
            if found is None or _owner(found) == service.uid:
                continue
            if (found["metadata"].get("labels") or {}).get(names.SERVICE_LABEL) == service.key.name:
                raise TransientError(
                    f"{kind} {name} of a deleted service is being collected", _COLLECTED_AGAIN
                )
            raise RefusedError(
                Reason.OBJECT_NAME_TAKEN,
                f"metadata.name: {kind} {name} exists and is not Headrace's: delete it or rename the service",
            )

    async def _do(self, service: LLMService, action: Apply | Delete) -> None:
        match action:
            case Apply(manifest):
                self.cache.put(await self.cluster.apply(manifest))
                ACTIONS.labels("apply", manifest["kind"]).inc()
            case Delete(kind, name, uid):
                await self.cluster.delete(kind, service.key.namespace, name, uid)
                ACTIONS.labels("delete", kind).inc()

    async def _nudge(self, key: Key, nudge: Nudge) -> None:
        self._nudged[key][nudge.pod.uid] = self.clock()
        annotations = {names.POLICY_NUDGE: nudge.value}
        try:
            self.cache.put(await self.cluster.annotate("Pod", key.namespace, nudge.pod.name, annotations))
        except ApiError as error:
            if error.code != 404:  # the pod is gone, and with it the need
                raise
        ACTIONS.labels("nudge", "Pod").inc()

    def _follow(self, key: Key) -> float | None:
        """Follow the ready pods; seconds until the next nudge is due."""
        observed = self._observe(key)
        document = policy_in_force(key, observed)
        if document is None:
            self.engines.follow(key, (), "")
            return None
        self.engines.follow(key, observed.ready, document.hash)
        due = next_nudge(observed, document.hash, self._nudged.get(key, {}))
        return None if due is None else max(0.0, due - self.clock())

    async def _report(self, body: dict[str, Any], refused: RefusedError | None, failure: str) -> None:
        """Write the status if it changed, then tell what changed in it."""
        metadata = body["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        previous = (self.cache.service(key) or body).get("status") or {}
        paused = (metadata.get("annotations") or {}).get(PAUSED) == "true"
        subject = Subject(key, metadata.get("generation", 1), paused, previous)
        current = status(
            subject, self._observe(key), refused, failure, gateway=self.settings.gateway, now=_timestamp()
        )
        written = _json(current)
        if written == previous:
            return
        self.cache.put(await self.cluster.apply_status(KIND, key.namespace, key.name, written))
        for happening in transitions(previous, current):
            await self.recorder.record(body, happening)


def _owner(body: dict[str, Any]) -> str | None:
    """Uid of the controlling owner."""
    owners = body["metadata"].get("ownerReferences") or []
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)


def _earlier(left: float | None, right: float | None) -> float | None:
    return min((delay for delay in (left, right) if delay is not None), default=None)


def _json(current: ServiceStatus) -> dict[str, Any]:
    return current.model_dump(mode="json", by_alias=True, exclude_none=True)


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
