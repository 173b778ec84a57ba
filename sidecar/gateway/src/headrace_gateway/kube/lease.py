"""Which of several pickers configures Envoys and reports on routes: the one that holds a Lease.

All pickers choose engines. Who reports that a route works must know what every Envoy has, so all Envoys come
to one picker. One that cannot reach the API server keeps what it had: while nobody can take the Lease, nobody
leads in its place. At worst two lead for a while, and Envoys come to either.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from kubernetes.aio import client
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.baselock import BaseLock
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

log = logging.getLogger(__name__)

LEASE_SECONDS = 6  # after this without renewal another picker takes over
RENEW_SECONDS = 2

Lead = Callable[[bool | None], None]  # None: nobody is known to lead


class Lock(LeaseLock):
    """The library's, whose own `create` asks for `pretty=True`, which the client refuses."""

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Create the Lease; returns whether it was made."""
        spec = self.update_lease(election_record)
        body = client.V1Lease(metadata=client.V1ObjectMeta(name=name), spec=spec)
        try:
            await self.api_instance.create_namespaced_lease(namespace, body)
        except client.ApiException as error:
            log.info("lease %s was not created: %s", name, error.reason)
            return False
        return True


class Election:
    """One picker's part in the election of the leader."""

    def __init__(self, lock: BaseLock) -> None:
        self._lock = lock
        self._election = LeaderElection(
            Config(lock, LEASE_SECONDS, LEASE_SECONDS - RENEW_SECONDS / 2, RENEW_SECONDS, _do_nothing, None)
        )

    def leads(self) -> bool:
        """Tell whether the Lease was ours when last seen."""
        seen = self._election.observed_record
        return seen is not None and seen.holder_identity == self._lock.identity

    def standing(self) -> bool | None:
        """Tell whether this picker leads; None: not, nor does another, as far as is known."""
        if self.leads():
            return True
        seen = self._election.observed_record
        age = time.time() - self._election.observed_time_milliseconds / 1000
        return False if seen is not None and seen.holder_identity and age < LEASE_SECONDS else None

    async def renew_or_take(self) -> None:
        """Renew the Lease, take it if it is free, or see whose it is."""
        try:
            async with asyncio.timeout(RENEW_SECONDS):
                await self._election.try_acquire_or_renew()
        except Exception as error:  # a broken answer fails in many ways; the next step asks again
            log.warning("lease %s: %s", self._lock.name, str(error) or type(error).__name__)

    async def release(self) -> None:
        """Give the Lease back, so that the next picker need not wait for it to expire."""
        found, _ = await self._lock.get(self._lock.name, self._lock.namespace)
        lease = self._lock.lease_reference
        if found and lease.spec.holder_identity == self._lock.identity:
            lease.spec.holder_identity = None
            await self._lock.api_instance.replace_namespaced_lease(
                self._lock.name, self._lock.namespace, lease
            )


async def run_election(api: client.ApiClient, namespace: str, name: str, me: str, lead: Lead) -> None:
    """Take part for ever in the election by Lease `namespace/name`; tells `lead` of every change."""
    election = Election(Lock(name, namespace, me, api))
    led: bool | None = None
    try:
        while True:
            await election.renew_or_take()
            standing = election.standing()
            if standing != led:
                if bool(standing) != bool(led):
                    log.info("%s leads" if standing else "another picker leads, %s does not", me)
                led = standing
                lead(led)
            await asyncio.sleep(RENEW_SECONDS)
    finally:
        if led:
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    await election.release()
            except Exception as error:  # it expires by itself
                log.warning("lease %s was not given back: %s", name, str(error) or type(error).__name__)


async def _do_nothing() -> None:
    """Do what the library wants done while leading: nothing."""
