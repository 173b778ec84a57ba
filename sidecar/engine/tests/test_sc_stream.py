"""The broadcast of load reports, on a clock that the tests move and to readers that they invent."""

import asyncio
import contextlib
import time
from dataclasses import replace

import pytest

from headrace_engine.contracts import EngineInfo, LoadReport, loads
from headrace_sidecar import stream
from headrace_sidecar.estimates import Rates
from headrace_sidecar.reports import NOTHING, load_report
from headrace_sidecar.stream import REPEAT_AFTER, Broadcast

REPORT = load_report(EngineInfo("Idle"), NOTHING, Rates(), serving=True)


class Reader:
    """Takes lines while `open`; keeps what it took."""

    def __init__(self):
        self.got = []
        self.open = asyncio.Event()
        self.open.set()

    async def write(self, data):
        await self.open.wait()
        self.got.append(loads(LoadReport, data))


@contextlib.asynccontextmanager
async def feeding(broadcast, *readers):
    tasks = [asyncio.create_task(broadcast.feed(reader)) for reader in readers]
    await settled()
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def settled():
    """Let every task run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_each_change_is_told_to_everyone():
    broadcast, readers = Broadcast(), [Reader() for _ in range(50)]
    async with feeding(broadcast, *readers):
        for waiting in range(3):
            broadcast.offer(replace(REPORT, waiting=waiting), now=float(waiting))
            await settled()
    assert {tuple(report.waiting for report in reader.got) for reader in readers} == {(0, 1, 2)}


async def test_an_unchanged_report_is_repeated_only_as_a_sign_of_life():
    broadcast, reader = Broadcast(), Reader()
    async with feeding(broadcast, reader):
        for tick in range(50):
            broadcast.offer(replace(REPORT, time=float(tick), step_seconds=tick / 7), now=100 + tick * 0.05)
            await settled()
    assert [report.time for report in reader.got] == [0, REPEAT_AFTER / 0.05, 2 * REPEAT_AFTER / 0.05]


async def test_who_comes_later_gets_the_present_report_at_once():
    broadcast, reader = Broadcast(), Reader()
    broadcast.offer(replace(REPORT, running=4), now=1.0)
    async with feeding(broadcast, reader):
        assert [report.running for report in reader.got] == [4]


async def test_a_slow_reader_gets_the_newest_and_holds_back_nobody():
    broadcast, slow, quick = Broadcast(), Reader(), Reader()
    async with feeding(broadcast, slow, quick):
        slow.open.clear()
        for waiting in range(100):
            broadcast.offer(replace(REPORT, waiting=waiting), now=float(waiting))
            await settled()
        slow.open.set()
        await settled()
    assert [report.waiting for report in quick.got] == list(range(100))
    assert [report.waiting for report in slow.got] == [0, 99]


async def test_a_reader_that_takes_nothing_is_let_go(monkeypatch):
    monkeypatch.setattr(stream, "WRITE_SECONDS", 0.01)
    broadcast, stuck = Broadcast(), Reader()
    stuck.open.clear()
    broadcast.offer(REPORT, now=time.monotonic())
    async with feeding(broadcast, stuck) as (task,):
        with pytest.raises(TimeoutError):
            await task


async def test_closing_ends_all_streams():
    broadcast, readers = Broadcast(), [Reader(), Reader()]
    async with feeding(broadcast, *readers) as tasks:
        broadcast.close()
        await asyncio.gather(*tasks)
    broadcast.close()
    await broadcast.feed(readers[0])
    assert readers[0].got == []
