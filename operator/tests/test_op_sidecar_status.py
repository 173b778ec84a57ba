"""Following engines: asked at once and often until they answer; none delays another."""

import asyncio

import pytest

from headrace_engine.contracts import AppliedPolicy, EngineInfo, EngineStatus, PredictionState
from headrace_operator.api import Key
from headrace_operator.decide.documents import Documents
from headrace_operator.decide.observation import Pod
from headrace_operator.run import sidecar_status
from headrace_operator.run.sidecar_status import SidecarStatuses

KEY = Key("llm", "chat")


class FakeClient:
    """Answers by address; an exception is raised, an event is waited for."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []
        self.state = "Idle"
        self.turn_group = ""
        self.asked_often = asyncio.Event()

    async def status(self, ip):
        self.asked.append(ip)
        if len(self.asked) > 5:
            self.asked_often.set()
        answer = self.answers[ip]
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        if isinstance(answer, Exception):
            raise answer
        learned = PredictionState("Quantile", learned=len(self.asked))
        engine = EngineInfo(self.state, f"no step for {len(self.asked)} s")
        policy = AppliedPolicy("FCFS", answer)
        return EngineStatus("0.1.0", ("FCFS",), 1, engine, policy, learned, self.turn_group)


def pod(name):
    return Pod(name, f"uid-{name}", name, ready=True, policy_refresh="", problem=None)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(sidecar_status, "_FAST", 0.001)


class Follow:
    """Engines over a fake client, with a signal for each change."""

    def __init__(self, client):
        self.changed = asyncio.Event()
        self.changes = []
        self.engines = SidecarStatuses(client.status, self._on_change)

    def _on_change(self, key):
        self.changes.append(key)
        self.changed.set()

    async def until(self, check):
        async with asyncio.timeout(30):
            while not check(self.engines.reports(KEY)):
                self.changed.clear()
                await self.changed.wait()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.engines.stop()


def applied(reports, name):
    status = reports[f"uid-{name}"].status
    return status.policy.applied_hash if status else None


async def test_reports_arrive_and_a_change_is_told():
    client = FakeClient(a="old")
    async with Follow(client) as follow:
        follow.engines.follow(KEY, [pod("a")], Documents("new"))
        await follow.until(lambda reports: applied(reports, "a") == "old")
        client.answers["a"] = "new"
        await follow.until(lambda reports: applied(reports, "a") == "new")
        assert follow.changes == [KEY, KEY]


@pytest.mark.parametrize("state", ["Idle", "Hung", "Gone"])
async def test_what_requests_and_time_change_is_no_change(state):
    client = FakeClient(a="old")
    client.state = state
    async with Follow(client) as follow:
        follow.engines.follow(KEY, [pod("a")], Documents("new"))
        async with asyncio.timeout(30):
            await client.asked_often.wait()
        assert follow.engines.reports(KEY)["uid-a"].status.prediction.learned > 1
        assert follow.changes == [KEY]


async def test_one_that_hangs_delays_no_other():
    async with Follow(FakeClient(dead=asyncio.Event(), a="x")) as follow:
        follow.engines.follow(KEY, [pod("dead"), pod("a")], Documents("x"))
        await follow.until(lambda reports: applied(reports, "a") == "x")
        assert applied(follow.engines.reports(KEY), "dead") is None


async def test_settled_engines_are_left_alone_until_the_wanted_policy_changes():
    client = FakeClient(a="x")
    async with Follow(client) as follow:
        follow.engines.follow(KEY, [pod("a")], Documents("x"))
        await follow.until(lambda reports: applied(reports, "a") == "x")
        follow.engines.follow(KEY, [pod("a")], Documents("x"))
        await asyncio.sleep(0.02)  # twenty times the pause between questions to an unsettled engine
        assert client.asked == ["a"]
        client.answers["a"] = "y"
        follow.engines.follow(KEY, [pod("a")], Documents("y"))
        await follow.until(lambda reports: applied(reports, "a") == "y")


async def test_an_engine_that_has_yet_to_learn_of_its_group_is_asked_often():
    client = FakeClient(a="x")
    async with Follow(client) as follow:
        follow.engines.follow(KEY, [pod("a")], Documents("x", "group"))
        async with asyncio.timeout(30):
            await client.asked_often.wait()
        client.turn_group = "group"
        await follow.until(lambda reports: reports["uid-a"].status.turn_group == "group")


async def test_a_few_failures_keep_the_last_report_and_more_say_unreachable():
    client = FakeClient(a="x")
    async with Follow(client) as follow:
        follow.engines.follow(KEY, [pod("a")], Documents("y"))
        await follow.until(lambda reports: applied(reports, "a") == "x")
        client.answers["a"] = OSError("refused")
        before = len(client.asked)
        await follow.until(lambda reports: reports["uid-a"].error)
        assert len(client.asked) - before == 3
        assert "refused" in follow.engines.reports(KEY)["uid-a"].error


async def test_pods_that_left_are_no_longer_asked():
    client = FakeClient(a="x", b="x")
    async with Follow(client) as follow:
        follow.engines.follow(KEY, [pod("a"), pod("b")], Documents("x"))
        await follow.until(lambda reports: applied(reports, "a") and applied(reports, "b"))
        follow.engines.follow(KEY, [pod("b")], Documents("x"))
        assert set(follow.engines.reports(KEY)) == {"uid-b"}
        follow.engines.follow(KEY, [], Documents("x"))
        assert follow.engines.reports(KEY) == {}
