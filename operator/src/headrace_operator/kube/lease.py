"""Which replica of the operator writes: the one that holds a Lease.

    standby ── the Lease is free, or unchanged for 15 s ──► leader ── not renewed for 10 s ──► standby

Every replica watches, so that its cache is ready; only the leader's workers run. Each measures time by its
own monotonic clock from when it saw the Lease change, so clocks need not agree. The leader counts from before
it asked for the renewal, so it has stopped 5 s before another may begin; `Lease.seconds_left` bounds every
write, so that also a process that was suspended writes nothing when it wakes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from headrace_operator.api.bodies import Body, JsonObject
from headrace_operator.errors import ApiError
from headrace_operator.kube.kinds import LEASE
from headrace_operator.metrics import LEADER

_DURATION = 15  # seconds that a Lease lasts without renewal
_RENEW_WITHIN = 10.0  # seconds after which a leader without renewal stops
_PERIOD = 2.0  # seconds between attempts of the leader
_STANDBY_PERIOD = 1.0  # so that another leads 17 s after the last renewal, and the time that requests take
_ANSWER_SECONDS = 5.0  # seconds for one attempt, so that a request that hangs leaves time for another
_OUTAGE_PERIOD = 15.0  # seconds; a standby without an answer doubles its pauses up to this

logger = logging.getLogger(__name__)


class Leases(Protocol):
    """What is done at the API server. Every method raises ApiError."""

    async def read(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """Read the object as it is; None if it does not exist."""

    async def write_lease(self, lease: Body) -> JsonObject:
        """Create it, or with a resource version replace exactly that version."""


@dataclass(slots=True)
class Lease:
    """One replica's view of the Lease."""

    namespace: str
    name: str
    identity: str  # no other process has it
    clock: Callable[[], float]  # seconds
    _held_until: float = float("-inf")
    _seen: tuple[str, str] = ("", "")  # holder and version
    _seen_at: float = 0.0
    _written: JsonObject | None = None  # what we wrote last, and expect to be there still

    def seconds_left(self) -> float:
        """Return for how long this replica may write; 0 or less: it may not."""
        return self._held_until - self.clock()

    @property
    def leading(self) -> bool:
        """Whether this replica may write."""
        return self.seconds_left() > 0.0

    async def acquire_or_renew(self, leases: Leases) -> None:
        """Take or renew the Lease if it is free or ours. Raises ApiError or TimeoutError."""
        asked = self.clock()
        seconds = min(_ANSWER_SECONDS, self.seconds_left()) if self.leading else _ANSWER_SECONDS
        async with asyncio.timeout(seconds):
            found = self._written if self.leading else None  # a renewal is one request
            self._written = None
            if found is None:
                found = await leases.read(LEASE.kind, self.namespace, self.name)
            if found is not None and not self._is_free(found):
                self._held_until = float("-inf")
                return
            try:
                written = await leases.write_lease(self._ours(found, self.identity))
            except ApiError as error:
                if error.code == 409:  # another was faster, or an answer to us was lost: read it next time
                    return
                raise
        self._record_seen(written)
        self._written = written
        self._held_until = asked + _RENEW_WITHIN

    async def release(self, leases: Leases) -> None:
        """Let another have it at once, if it is ours; failing that it runs out."""
        if not self.leading:
            return
        self._held_until = float("-inf")
        try:
            async with asyncio.timeout(_PERIOD):
                found = await leases.read(LEASE.kind, self.namespace, self.name)
                if found is not None and _holder(found) == self.identity:
                    await leases.write_lease(self._ours(found, ""))
        except (ApiError, TimeoutError) as error:
            logger.warning("the Lease %s runs out by itself: %s", self.name, error)

    def _is_free(self, found: JsonObject) -> bool:
        """Tell whether the Lease is nobody's or ours, or its holder let it run out as we looked on."""
        self._record_seen(found)
        duration = found["spec"].get("leaseDurationSeconds") or _DURATION
        return _holder(found) in {"", self.identity} or self.clock() - self._seen_at >= duration

    def _record_seen(self, found: JsonObject) -> None:
        seen = _holder(found), found["metadata"]["resourceVersion"]
        if seen != self._seen:
            self._seen, self._seen_at = seen, self.clock()

    def _ours(self, found: JsonObject | None, holder: str) -> JsonObject:
        """Make the Lease as it is to be written."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before = found["spec"] if found else {}
        spec = {
            **({"holderIdentity": holder} if holder else {}),
            "leaseDurationSeconds": _DURATION if holder else 1,
            "acquireTime": before.get("acquireTime", now),
            "renewTime": now,
            "leaseTransitions": before.get("leaseTransitions", 0),
        }
        if holder and found is not None and _holder(found) != holder:
            spec |= {"acquireTime": now, "leaseTransitions": spec["leaseTransitions"] + 1}
        metadata = {"name": self.name, "namespace": self.namespace}
        if found is not None:
            metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
        return {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata, "spec": spec}


async def run_election(
    lease: Lease, leases: Leases, start: Callable[[], None], stop: Callable[[], Awaitable[None]]
) -> None:
    """Run for ever: `start` when this replica becomes the leader, `stop` when it no longer is or ends."""
    serving, pause = False, _PERIOD
    try:
        while True:
            answered = await _attempt(lease, leases)
            if lease.leading != serving:
                serving = lease.leading
                LEADER.set(serving)
                logger.info("this replica %s", "leads" if serving else "stands by")
                if serving:
                    start()
                else:
                    await stop()
            if serving or answered:
                pause = _PERIOD if serving else _STANDBY_PERIOD
            else:
                pause = min(2.0 * pause, _OUTAGE_PERIOD)
            await asyncio.sleep(min(pause, max(0.0, lease.seconds_left())) if serving else pause)
    finally:
        if serving:
            LEADER.set(0)
            await stop()
            await lease.release(leases)


async def _attempt(lease: Lease, leases: Leases) -> bool:
    """Try once; returns whether the API server answered."""
    try:
        await lease.acquire_or_renew(leases)
    except (ApiError, TimeoutError) as error:
        logger.warning("Lease %s/%s: %s", lease.namespace, lease.name, str(error) or "no answer in time")
        return False
    return True


def _holder(found: JsonObject) -> str:
    return found["spec"].get("holderIdentity") or ""
