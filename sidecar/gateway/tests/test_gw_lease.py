"""Which of several pickers leads: two of them and a Lease in memory, time given by the test."""

import asyncio

import pytest
from kubernetes.aio.client import ApiException, V1Lease, V1LeaseSpec, V1ObjectMeta
from kubernetes.aio.leaderelection import leaderelection

from headrace_gateway.kube import lease
from headrace_gateway.kube.lease import LEASE_SECONDS, Election, Lock


class Leases:
    """The API server's part that a picker uses; `away` makes every call fail."""

    def __init__(self):
        self.spec = None
        self.version = 0
        self.away = None

    def _answer(self):
        metadata = V1ObjectMeta(name="picker", resource_version=str(self.version))
        spec = {name: getattr(self.spec, name) for name in V1LeaseSpec.openapi_types}
        for name in ("acquire_time", "renew_time"):
            if isinstance(spec[name], str):
                spec[name] = leaderelection.datetime.datetime.fromisoformat(spec[name].removesuffix("Z"))
        return V1Lease(metadata=metadata, spec=V1LeaseSpec(**spec))

    async def read_namespaced_lease(self, name, namespace):
        assert (name, namespace) == ("picker", "system")
        if self.away:
            raise self.away
        if self.spec is None:
            error = ApiException(status=404)
            error.body = '{"code": 404}'
            raise error
        return self._answer()

    async def create_namespaced_lease(self, _namespace, body):
        if self.spec is not None:
            raise ApiException(status=409)
        self.spec, self.version = body.spec, 1

    async def replace_namespaced_lease(self, name, namespace, body):
        assert (name, namespace) == ("picker", "system")
        if self.away:
            raise self.away
        if body.metadata.resource_version != str(self.version):
            raise ApiException(status=409)
        self.spec, self.version = body.spec, self.version + 1


@pytest.fixture
def leases():
    return Leases()


@pytest.fixture
def pickers(leases):
    """Elections of pickers `a` and `b`."""

    def candidate(name):
        lock = Lock("picker", "system", name, api_client=None)
        lock.api_instance = leases
        return Election(lock)

    return candidate("a"), candidate("b")


@pytest.fixture
def clock(monkeypatch):
    """Seconds that the library's clock shows; the test moves them."""
    now = [1_700_000_000.5]

    class Time:
        @staticmethod
        def time():
            return now[0]

    monkeypatch.setattr(leaderelection, "time", Time)
    return now


async def test_one_leads_and_keeps_it(pickers, clock):
    a, b = pickers
    for _ in range(5):
        await a.renew_or_take()
        await b.renew_or_take()
        assert (a.leads(), b.leads()) == (True, False)
        clock[0] += LEASE_SECONDS / 2


async def test_a_dead_leader_is_followed_when_its_lease_is_over(pickers, clock):
    a, b = pickers
    await a.renew_or_take()
    await b.renew_or_take()
    clock[0] += LEASE_SECONDS - 0.1
    await b.renew_or_take()
    assert not b.leads()
    clock[0] += 0.2
    await b.renew_or_take()
    assert b.leads()
    await a.renew_or_take()  # it was only asleep
    assert (a.leads(), b.leads()) == (False, True)


async def test_a_leader_that_leaves_gives_the_lease_back(pickers, clock, leases):
    a, b = pickers
    await a.renew_or_take()
    await b.renew_or_take()
    await b.release()  # not its own
    assert leases.spec.holder_identity == "a"
    await a.release()
    await b.renew_or_take()
    assert b.leads()


@pytest.mark.parametrize("error", [ApiException(status=500), ConnectionResetError(), TimeoutError()])
async def test_an_api_server_that_is_away_changes_nothing(pickers, clock, leases, error):
    a, b = pickers
    await a.renew_or_take()
    await b.renew_or_take()
    leases.away = error
    clock[0] += 300
    for _ in range(3):
        await a.renew_or_take()
        await b.renew_or_take()
    assert (a.leads(), b.leads()) == (True, False)
    leases.away = None
    await a.renew_or_take()
    await b.renew_or_take()
    assert (a.leads(), b.leads()) == (True, False)


async def test_the_picker_is_told_and_releases_at_its_end(monkeypatch, leases):
    lock = Lock("picker", "system", "a", api_client=None)
    lock.api_instance = leases
    monkeypatch.setattr(lease, "Lock", lambda *_: lock)
    told = asyncio.Queue()
    electing = asyncio.create_task(lease.run_election(None, "system", "picker", "a", told.put_nowait))
    assert await told.get() is True
    electing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await electing
    assert leases.spec.holder_identity is None
