"""Workers: what fails comes again, what hangs shows, and neither stops the others."""

import asyncio

import pytest

from headrace_operator.api import Key
from headrace_operator.errors import ApiError
from headrace_operator.run import workers as module
from headrace_operator.run.workers import Workers
from headrace_operator.run.workqueue import WorkQueue

A, B = Key("llm", "a"), Key("llm", "b")


class Loop:
    """Workers around a scripted reconcile: per key, a list of results or exceptions."""

    def __init__(self, script):
        self.script = script
        self.seen = []
        self.changed = asyncio.Event()
        self.queue = WorkQueue(jitter=lambda: 0.0)
        self.workers = Workers(self.queue, self.reconcile, self.resync)
        self.resyncs = 0
        self.outage = 0  # resyncs that fail at the start; later those that do not look at all

    async def reconcile(self, key):
        self.seen.append(key)
        self.changed.set()
        result = self.script[key].pop(0) if self.script[key] else None
        if isinstance(result, Exception):
            raise result
        if isinstance(result, asyncio.Event):
            await result.wait()
            return None
        return result

    async def resync(self, all_services):
        self.resyncs += 1
        self.changed.set()
        if self.resyncs <= self.outage or not all_services:
            raise ApiError(503, "down")

    async def until(self, check):
        async with asyncio.timeout(30):
            while not check():
                self.changed.clear()
                await self.changed.wait()

    async def __aenter__(self):
        self.workers.start()
        return self

    async def __aexit__(self, *_):
        await self.workers.stop()


@pytest.mark.parametrize("error", [ApiError(500, "x"), ApiError(409, "conflict"), ValueError("a bug")])
async def test_a_failure_is_retried_and_stops_nobody(error):
    async with Loop({A: [error, error], B: []}) as loop:
        loop.queue.add(A)
        loop.queue.add(B)
        await loop.until(lambda: loop.seen.count(A) == 3)
        assert loop.seen.count(B) == 1
        assert loop.workers.alive


async def test_nothing_is_worked_on_before_what_a_standby_missed_is_known(monkeypatch):
    monkeypatch.setattr(module, "_FIRST_RETRY_SECONDS", 0.001)
    loop = Loop({A: []})
    loop.outage = 3
    loop.queue.add(A)
    async with loop:
        await loop.until(lambda: loop.resyncs == 3)
        assert loop.seen == []
        await loop.until(lambda: loop.seen == [A])
        assert loop.resyncs == 4


async def test_a_reconcile_may_ask_to_come_again():
    async with Loop({A: [0.001, 0.001]}) as loop:
        loop.queue.add(A)
        await loop.until(lambda: loop.seen.count(A) == 3)


async def test_one_that_hangs_shows_in_liveness_while_others_go_on(monkeypatch):
    hanging = asyncio.Event()
    async with Loop({A: [hanging], B: []}) as loop:
        loop.queue.add(A)
        await loop.until(lambda: A in loop.seen)
        assert loop.workers.alive
        monkeypatch.setattr(module, "_STUCK", 0.0)
        assert not loop.workers.alive
        loop.queue.add(B)
        await loop.until(lambda: B in loop.seen)
        hanging.set()


async def test_one_that_takes_too_long_comes_again_and_does_not_look_stuck(monkeypatch):
    monkeypatch.setattr(module, "_LONGEST", 0.01)
    async with Loop({A: [asyncio.Event()]}) as loop:
        loop.queue.add(A)
        await loop.until(lambda: loop.seen.count(A) == 2)
        assert loop.workers.alive


async def test_dead_workers_are_not_alive():
    async with Loop({}) as loop:
        for task in asyncio.all_tasks():
            if task.get_name() == "resync":
                task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not loop.workers.alive


async def test_what_a_stop_cut_off_is_taken_up_again_after_the_next_start():
    async with Loop({A: [asyncio.Event()]}) as loop:
        loop.queue.add(A)
        await loop.until(lambda: loop.seen == [A])
        await loop.workers.stop()
        assert loop.workers.alive  # nothing is wrong with one that stands by
        loop.workers.start()
        await loop.until(lambda: loop.seen == [A, A])


async def test_a_failing_resync_is_repeated(monkeypatch):
    monkeypatch.setattr(module, "_RESYNC", 0.001)
    monkeypatch.setattr(module, "_RESYNC_AGAIN", 0.001)
    async with Loop({}) as loop:
        await loop.until(lambda: loop.resyncs == 3)
        assert loop.workers.alive
