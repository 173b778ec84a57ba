"""Pools have their plans: engines are asked, one plan at a time is made, and again when it is due."""

import asyncio
import logging

import pytest
from op_planning import NOON, asked, planned_pool, question, service, window

from headrace_engine.contracts import ContractError
from headrace_engine.contracts.traffic import Traffic
from headrace_operator.api import Key, Reason
from headrace_operator.errors import ApiError
from headrace_operator.planning.question import Answer, Question
from headrace_operator.run import pool_planner
from headrace_operator.run.pool_planner import NoPlanError, PoolPlanner, PoolView, answer_in_process

KEY, OTHER = Key("llm", "shared", "GPUPool"), Key("llm", "other", "GPUPool")
MADE = Answer(Reason.PLAN_MADE, "made")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(pool_planner, "_ASK_SECONDS", 0.001)
    monkeypatch.setattr(pool_planner, "_PAUSE_SECONDS", 0.0)


class World:
    """Engines by address, a maker of plans, and a clock that the test moves."""

    def __init__(self):
        self.now = float(NOON + 30)
        self.view = PoolView(
            planned_pool("chat", "code"),
            {"chat": service("chat"), "code": service("code")},
            {"chat": {"uid-a": "a", "uid-b": "b"}, "code": {"uid-c": "c"}},
        )
        self.engines = {"a": [window(0)], "b": [window(0), window(1)], "c": []}
        self.answer = MADE
        self.gate = asyncio.Event()
        self.gate.set()
        self.down, self.looks = False, 0
        self.questions, self.rounds, self.changes = [], 0, []
        self.moved = asyncio.Event()
        self.planner = PoolPlanner(self._fetch, self._make, self._on_change, lambda: self.now)

    async def _look(self):
        self.looks += 1
        self.moved.set()
        if self.down:
            raise ApiError(503, "unavailable")
        return self.view

    async def _fetch(self, ip):
        self.rounds += ip == "a"
        self.moved.set()
        if isinstance(self.engines[ip], Exception):
            raise self.engines[ip]
        return Traffic(tuple(self.engines[ip]))

    async def _make(self, question):
        self.questions.append(question)
        self.moved.set()
        await self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def _on_change(self, key):
        self.changes.append(key)
        self.moved.set()

    def follow(self, key=KEY, generation=1):
        self.planner.follow(key, generation, self._look)

    async def until(self, check):
        async with asyncio.timeout(30):
            while not check():
                self.moved.clear()
                await self.moved.wait()

    async def asked_again(self):
        """Until all engines were asked, and what followed from it is done."""
        rounds = self.rounds
        await self.until(lambda: self.rounds > rounds + 1)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.planner.stop()


def told(made_of):
    return {each.service["metadata"]["name"]: each for each in made_of.services}


async def test_a_plan_is_made_of_what_all_engines_told():
    async with World() as world:
        world.follow()
        await world.until(lambda: world.changes)
        [made_of] = world.questions
        assert made_of.time == "2026-11-18T11:07:10Z"
        assert made_of.pool == world.view.pool
        assert [each.requests for each in told(made_of)["chat"].windows] == [2, 1]
        assert (told(made_of)["code"].windows, told(made_of)["code"].silent) == ((), False)
        assert world.planner.answer(KEY, 1) == MADE
        assert world.planner.answer(KEY, 2) is None
        await world.asked_again()
        assert len(world.questions) == 1, "nothing has changed"


async def test_what_engines_told_before_they_ended_counts():
    async with World() as world:
        world.follow()
        await world.until(lambda: world.changes)
        world.engines["a"] = ConnectionError("no route")
        world.view = PoolView(
            world.view.pool, world.view.services, {"chat": {"uid-a": "a"}, "code": {"uid-c": "c"}}
        )
        world.now += 600
        await world.until(lambda: len(world.questions) == 2)
        assert [each.requests for each in told(world.questions[1])["chat"].windows] == [2, 1]


@pytest.mark.parametrize("error", [ConnectionError("no route"), ContractError("not JSON")])
async def test_engines_that_cannot_be_asked_are_silent_and_hold_up_no_other(error):
    async with World() as world:
        world.engines["a"] = world.engines["b"] = error
        world.follow()
        await world.until(lambda: world.changes)
        assert {name: each.silent for name, each in told(world.questions[0]).items()} == {
            "chat": True,
            "code": False,
        }


async def test_another_plan_is_made_when_it_is_due_or_the_pool_changes():
    async with World() as world:
        world.follow()
        await world.until(lambda: len(world.changes) == 1)
        world.now += 599
        await world.asked_again()
        assert len(world.questions) == 1
        world.now += 1
        await world.until(lambda: len(world.changes) == 2)
        world.view = PoolView(planned_pool("chat"), world.view.services, world.view.engines)
        world.follow(generation=2)
        await world.until(lambda: len(world.changes) == 3)
        assert world.planner.answer(KEY, 2) == MADE


async def test_a_change_of_a_service_waits_unless_the_plan_waits_for_it():
    async with World() as world:
        world.follow()
        await world.until(lambda: len(world.changes) == 1)
        for answer, plans in ((Answer(Reason.NOT_ESTIMABLE, "no cost model"), 1), (MADE, 3)):
            world.answer = answer
            changed = service("code", maxModelLen=4096 + len(world.questions))
            world.view = PoolView(
                world.view.pool, world.view.services | {"code": changed}, world.view.engines
            )
            if plans == 1:
                await world.asked_again()
                assert len(world.questions) == 1
                world.now += 600
                await world.until(lambda: len(world.changes) == 2)
            else:
                await world.until(lambda: len(world.changes) == 3)


async def test_without_traffic_the_first_requests_have_a_plan_made():
    async with World() as world:
        world.engines = {"a": [], "b": [], "c": []}
        world.answer = Answer(Reason.NO_TRAFFIC, "nothing")
        world.follow()
        await world.until(lambda: len(world.changes) == 1)
        await world.asked_again()
        assert len(world.questions) == 1
        world.engines["c"], world.answer = [window(1)], MADE
        await world.until(lambda: len(world.changes) == 2)
        assert world.planner.answer(KEY, 1) == MADE


async def test_a_plan_that_fails_is_told_and_made_again_when_it_is_due():
    async with World() as world:
        world.answer = NoPlanError("its process ended with -9: see the operator's log")
        world.follow()
        await world.until(lambda: len(world.changes) == 1)
        answer = world.planner.answer(KEY, 1)
        assert (answer.reason, answer.plan) == (Reason.PLAN_FAILED, None)
        assert "ended with -9" in answer.message
        world.answer = MADE
        world.now += 600
        await world.until(lambda: world.planner.answer(KEY, 1) == MADE)


async def test_plans_are_made_one_at_a_time():
    async with World() as world:
        world.gate.clear()
        world.follow(KEY)
        world.follow(OTHER)
        await world.until(lambda: world.questions)
        await world.until(lambda: world.rounds > 1)
        assert len(world.questions) == 1
        world.gate.set()
        await world.until(lambda: len(world.changes) == 2)


async def test_a_pool_that_is_forgotten_has_no_plan_any_more():
    async with World() as world:
        world.gate.clear()
        world.follow()
        await world.until(lambda: world.questions)
        world.planner.forget(KEY)
        assert world.planner.answer(KEY, 1) is None
        world.follow(OTHER)
        world.gate.set()
        await world.until(lambda: world.changes)
        assert world.changes == [OTHER]


async def test_pools_whose_services_do_not_exist_yet_wait_for_them():
    async with World() as world:
        full = world.view
        world.view = PoolView(full.pool, {}, {})
        world.follow()
        await world.until(lambda: world.looks > 1)
        assert not world.questions
        world.view = full
        await world.until(lambda: world.changes)
        assert set(told(world.questions[0])) == {"chat", "code"}


async def test_an_outage_of_the_api_server_is_waited_out(caplog):
    async with World() as world:
        world.down = True
        with caplog.at_level(logging.WARNING):
            world.follow()
            await world.until(lambda: world.looks > 1)
        world.down = False
        await world.until(lambda: world.changes)
        assert "no plan is made: unavailable" in caplog.text
        assert "Traceback" not in caplog.text


async def test_a_fault_of_ours_is_logged_and_the_next_round_comes(caplog):
    async with World() as world:
        world.answer = ZeroDivisionError("a fault")
        with caplog.at_level(logging.ERROR):
            world.follow()
            await world.until(lambda: len(world.questions) == 2)
        assert "no plan is made" in caplog.text


async def test_a_real_process_makes_the_plan():
    answer = await answer_in_process(question((service("chat"), asked(2)), (service("code"), asked(2))))
    assert (answer.reason, answer.plan.gpus) == (Reason.PLAN_MADE, 1)
    groups = {"groups": [{"name": "a", "members": ["b"]}]}
    with pytest.raises(NoPlanError, match="its process ended with 1: see the operator's log"):
        await answer_in_process(Question({**planned_pool("chat"), "spec": groups}, (), ""))


async def test_a_process_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(pool_planner, "_LONGEST", 0.01)
    with pytest.raises(NoPlanError, match="not made within"):
        await answer_in_process(question((service("chat"), asked(2))))
