"""Leader election: on a virtual clock, with an API server in memory that fails when told."""

import asyncio
import copy

import pytest

from headrace_operator.errors import ApiError
from headrace_operator.kube import lease as module
from headrace_operator.kube.lease import Lease, run_election
from headrace_operator.metrics import LEADER


class World:
    """The one Lease, and the time that all replicas share."""

    def __init__(self):
        self.now = 100.0
        self.lease = None
        self.version = 0
        self.before_write = None  # what happens between a replica's read and its write
        self.error = None

    async def read(self, kind, namespace, name):
        self._fail()
        return copy.deepcopy(self.lease)

    async def write_lease(self, lease):
        if self.before_write:
            happens, self.before_write = self.before_write, None
            await happens()
        self._fail()
        current = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if lease["metadata"].get("resourceVersion") != current:
            raise ApiError(409, "it is another by now")
        self.version += 1
        self.lease = copy.deepcopy(dict(lease))
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)

    def replica(self, name):
        return Lease("headrace-system", "operator", name, lambda: self.now)

    def _fail(self):
        if self.error:
            raise self.error


@pytest.fixture
def world():
    return World()


async def pass_time(world, seconds, *replicas):
    """Each replica tries every two seconds."""
    for _ in range(seconds // 2):
        world.now += 2.0
        for replica in replicas:
            await replica.acquire_or_renew(world)


async def test_the_first_leads_and_keeps_leading(world):
    a, b = world.replica("a"), world.replica("b")
    await a.acquire_or_renew(world)
    await b.acquire_or_renew(world)
    await pass_time(world, 60, a, b)
    assert (a.leading, b.leading) == (True, False)
    assert world.lease["spec"]["holderIdentity"] == "a"
    assert world.lease["spec"]["leaseTransitions"] == 0


async def test_a_leader_that_dies_is_followed_within_twenty_seconds(world):
    a, b = world.replica("a"), world.replica("b")
    await a.acquire_or_renew(world)
    await pass_time(world, 14, b)
    assert not b.leading
    await pass_time(world, 4, b)
    assert b.leading
    assert world.lease["spec"]["leaseTransitions"] == 1


async def test_the_old_leader_has_stopped_before_another_may_begin(world):
    a, b = world.replica("a"), world.replica("b")
    await a.acquire_or_renew(world)
    await b.acquire_or_renew(world)
    leading = []
    while not b.leading:
        world.now += 0.5
        await b.acquire_or_renew(world)
        leading.append(a.leading + b.leading)
    assert max(leading) == 1
    assert leading.count(0) >= 10  # five seconds without any


async def test_a_leader_that_gets_no_answer_stops_after_ten_seconds(world):
    a = world.replica("a")
    await a.acquire_or_renew(world)
    world.error = ApiError(500, "no")
    for _ in range(4):
        world.now += 2.0
        with pytest.raises(ApiError):
            await a.acquire_or_renew(world)
        assert a.leading
    world.now += 2.0
    assert a.seconds_left() <= 0.0
    world.error = None
    await a.acquire_or_renew(world)
    assert a.leading


async def test_a_suspended_leader_that_wakes_may_not_write(world):
    a, b = world.replica("a"), world.replica("b")
    await a.acquire_or_renew(world)
    await pass_time(world, 20, b)
    assert (a.leading, b.leading) == (False, True)
    await a.acquire_or_renew(world)
    assert not a.leading


async def test_of_two_that_take_it_at_once_one_has_it(world):
    a, b = world.replica("a"), world.replica("b")
    world.before_write = lambda: b.acquire_or_renew(world)
    await a.acquire_or_renew(world)
    assert (a.leading, b.leading) == (False, True)


async def test_an_answer_that_comes_late_shortens_the_lease(world):
    a = world.replica("a")

    async def slow():
        world.now += 4.0

    world.before_write = slow
    await a.acquire_or_renew(world)
    assert a.seconds_left() == 6.0


async def test_a_leader_that_leaves_is_followed_at_once(world):
    a, b = world.replica("a"), world.replica("b")
    await a.acquire_or_renew(world)
    await b.acquire_or_renew(world)
    await a.release(world)
    assert not a.leading
    await b.acquire_or_renew(world)
    assert b.leading


async def test_a_renewal_is_one_request_and_reads_again_when_it_finds_another_version(world):
    a = world.replica("a")
    await a.acquire_or_renew(world)
    reads, read = [], world.read
    world.read = lambda *args: reads.append(args) or read(*args)
    await pass_time(world, 6, a)
    assert reads == []
    world.lease["metadata"]["resourceVersion"] = "edited"
    await pass_time(world, 2, a)
    assert a.leading
    await pass_time(world, 2, a)
    assert len(reads) == 1
    assert a.seconds_left() == 10.0


async def test_one_that_does_not_lead_releases_nothing(world):
    a, b = world.replica("a"), world.replica("b")
    await a.acquire_or_renew(world)
    await b.release(world)
    assert world.lease["spec"].get("holderIdentity") == "a"


async def test_the_same_pod_takes_its_lease_again_at_once(world):
    await world.replica("a").acquire_or_renew(world)
    again = world.replica("a")
    await again.acquire_or_renew(world)
    assert again.leading


class Serving:
    """What `lead` starts and stops."""

    def __init__(self):
        self.told = []
        self.changed = asyncio.Event()

    def start(self):
        self._tell("start")

    async def stop(self):
        self._tell("stop")

    def _tell(self, word):
        self.told.append(word)
        self.changed.set()

    async def until(self, *words):
        async with asyncio.timeout(30):
            while self.told != list(words):
                self.changed.clear()
                await self.changed.wait()


async def test_work_starts_and_stops_with_the_lease_and_the_lease_is_left_at_the_end(world, monkeypatch):
    for period in ("_PERIOD", "_STANDBY_PERIOD", "_OUTAGE_PERIOD"):
        monkeypatch.setattr(module, period, 0.001)
    lease, serving = world.replica("a"), Serving()
    leading = asyncio.create_task(run_election(lease, world, serving.start, serving.stop))
    await serving.until("start")
    assert LEADER._value.get() == 1
    world.error = ApiError(503, "down")
    world.now += 10.0
    await serving.until("start", "stop")
    assert LEADER._value.get() == 0
    world.error = None
    await serving.until("start", "stop", "start")
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    assert serving.told[3:] == ["stop"]
    assert "holderIdentity" not in world.lease["spec"]


async def test_a_request_that_hangs_does_not_outlast_the_lease(world, monkeypatch):
    monkeypatch.setattr(module, "_ANSWER_SECONDS", 0.001)

    async def hang(*_):
        await asyncio.Event().wait()

    lease = world.replica("a")
    monkeypatch.setattr(world, "read", hang)
    with pytest.raises(TimeoutError):
        await lease.acquire_or_renew(world)
    assert not lease.leading
