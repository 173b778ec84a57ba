"""The picker that leads writes what changed, seldom, and nothing while nothing changes."""

import asyncio
import contextlib

import pytest
from gw_objects import llmroute
from gw_rig import until
from kubernetes.aio import client

from headrace_gateway.catalog import ServiceKey
from headrace_gateway.kube.llmroutes import MESSAGE_LENGTH, ReadRoute
from headrace_gateway.reports import status_reporter as module
from headrace_gateway.reports.route_status import route_status
from headrace_gateway.reports.status_reporter import Reporter
from headrace_gateway.xds.acknowledged import Progress

KEY = ServiceKey("llm", "chat")
NOW = "2026-01-01T00:00:00Z"
DONE = Progress(2, 2, frozenset({"a"}))


def conditions(status):
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


@pytest.mark.parametrize(
    ("error", "progress", "accepted", "programmed"),
    [
        ("", DONE, ("True", "Accepted"), ("True", "Programmed")),
        ("", Progress(2, 1), ("True", "Accepted"), ("False", "Pending")),
        ("", Progress(2, 1, refusal="x" * 9999), ("True", "Accepted"), ("False", "Refused")),
        ("", Progress(0, 0), ("True", "Accepted"), ("False", "NoEnvoy")),
        ("y" * 9999, DONE, ("False", "Refused"), ("True", "Programmed")),
    ],
)
def test_what_is_told(error, progress, accepted, programmed):
    status = route_status(ReadRoute(llmroute(generation=3), error), progress, NOW)
    assert conditions(status) == {"Accepted": accepted, "Programmed": programmed}
    assert status["observedGeneration"] == 3
    assert all(len(each["message"]) <= MESSAGE_LENGTH for each in status["conditions"])


def test_the_time_of_a_condition_moves_with_its_status_only():
    before = route_status(ReadRoute(llmroute()), DONE, NOW)
    told = ReadRoute(llmroute(status=before))
    later = route_status(told, Progress(2, 1), "2027-01-01T00:00:00Z")
    assert [each["lastTransitionTime"][:4] for each in later["conditions"]] == ["2026", "2027"]


def test_pods_are_as_many_as_the_schema_allows():
    many = frozenset(map(str, range(5000)))
    assert len(route_status(ReadRoute(llmroute()), Progress(1, 1, many), NOW)["pods"]) == 2048


class World:
    """Routes and their progress as the test says; what is written comes back as a watch would bring it."""

    def __init__(self):
        self.routes = {KEY: ReadRoute(llmroute())}
        self.progress = DONE
        self.writes = []
        self.away = False
        self.reporter = Reporter(lambda: self.routes, self.write)

    async def write(self, read, status):
        if self.away:
            raise OSError("away")
        self.writes.append(status)
        key = ServiceKey(read.manifest["metadata"]["namespace"], read.manifest["metadata"]["name"])
        self.routes[key] = ReadRoute({**read.manifest, "status": status}, read.error)

    async def written(self, count):
        await until(lambda: len(self.writes) >= count, "it is written")


@pytest.fixture
async def world(monkeypatch):
    for name in ("SETTLE_SECONDS", "GATHER_SECONDS", "APART_SECONDS", "LONGEST_PAUSE"):
        monkeypatch.setattr(module, name, 0.0)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.005)
    monkeypatch.setattr(module, "PASSING_SECONDS", 3600.0)
    world = World()
    task = asyncio.create_task(world.reporter.run(lambda key: world.progress))
    yield world
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_only_who_leads_reports(world):
    await asyncio.sleep(0.05)
    assert world.writes == []
    world.reporter.lead(True)
    await world.written(1)
    world.reporter.lead(False)
    await asyncio.sleep(0.02)
    world.progress = Progress(2, 2)
    await asyncio.sleep(0.05)
    assert len(world.writes) == 1


async def test_nothing_is_written_twice(world):
    world.reporter.lead(True)
    await world.written(1)
    for _ in range(5):
        world.reporter.note_change()
        await asyncio.sleep(0.02)
    assert len(world.writes) == 1
    world.progress = Progress(2, 2, frozenset())
    world.reporter.note_change()
    await world.written(2)
    assert world.writes[-1]["pods"] == []


async def test_what_passes_at_once_is_not_written(world):
    world.reporter.lead(True)
    await world.written(1)
    world.progress = Progress(2, 1)
    await asyncio.sleep(0.05)
    assert len(world.writes) == 1
    world.progress = Progress(2, 1, refusal="no")
    await world.written(2)
    assert conditions(world.writes[-1])["Programmed"] == ("False", "Refused")
    world.routes[KEY] = ReadRoute(llmroute(), "it has no spec")
    world.progress = Progress(2, 0)  # Envoys are told nothing of it
    await world.written(3)
    assert conditions(world.writes[-1])["Accepted"] == ("False", "Refused")


async def test_a_route_is_written_seldom(world, monkeypatch):
    monkeypatch.setattr(module, "APART_SECONDS", 3600.0)
    world.reporter.lead(True)
    await world.written(1)
    for number in range(5):
        world.progress = Progress(2, 2, frozenset({str(number)}))
        world.reporter.note_change()
        await asyncio.sleep(0.01)
    assert len(world.writes) == 1


async def test_what_another_has_put_in_its_place_is_written_again(world):
    """A route that was made anew between two looks, or a status that was written over."""
    world.reporter.lead(True)
    await world.written(1)
    another = llmroute(uid="2")
    another["metadata"]["resourceVersion"] = "2"
    world.routes[KEY] = ReadRoute(another)
    world.reporter.note_change()
    await world.written(2)
    assert conditions(world.writes[1]) == conditions(world.writes[0])
    for _ in range(5):
        world.reporter.note_change()
        await asyncio.sleep(0.01)
    assert len(world.writes) == 2


async def test_a_route_whose_status_is_refused_holds_up_no_other(world, monkeypatch):
    tried = []
    genuine = world.reporter._write

    async def write(read, status):
        name = read.manifest["metadata"]["name"]
        tried.append(name)
        if name == "chat":
            raise client.ApiException(status=403, reason="denied by a webhook")
        await genuine(read, status)

    world.reporter._write = write
    world.routes[ServiceKey("llm", "code")] = ReadRoute(llmroute(name="code"))
    monkeypatch.setattr(module, "LONGEST_PAUSE", 30.0)
    world.reporter.lead(True)
    await world.written(1)
    assert tried == ["chat", "code"]
    world.progress = Progress(2, 2, frozenset({"b"}))
    world.reporter.note_change()
    await world.written(2)
    assert tried.count("code") == 2


async def test_what_could_not_be_written_is_written_later(world):
    world.away = True
    world.reporter.lead(True)
    await asyncio.sleep(0.05)
    world.away = False
    await world.written(1)
