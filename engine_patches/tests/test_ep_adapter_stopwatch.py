"""The cheap stopwatch tells CPU time, whatever the machine does besides."""

import time

import pytest

from headrace_engine.adapter import stopwatch
from headrace_engine.adapter.stopwatch import EXACT_SECONDS, Stopwatch


class Machine:
    """A thread's two clocks; `exact` counts how often the dear one was asked."""

    def __init__(self, monkeypatch):
        self.wall, self.cpu, self.exact = 100.0, 7.0, 0
        monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: self.wall)
        monkeypatch.setattr(stopwatch.time, "thread_time", self.read)

    def read(self):
        self.exact += 1
        return self.cpu

    def work(self, seconds):
        self.wall += seconds
        self.cpu += seconds

    def wait(self, seconds):
        self.wall += seconds


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def test_work_is_counted_and_short_calls_ask_for_no_exact_time(machine):
    watch = Stopwatch()
    started = watch()
    for _ in range(9):
        machine.work(EXACT_SECONDS / 10)
        watch()
    assert watch() - started == pytest.approx(0.9 * EXACT_SECONDS)
    assert machine.exact == 1


def test_a_thread_that_stands_still_is_charged_no_more_than_a_moment(machine):
    watch = Stopwatch()
    started = watch()
    machine.work(EXACT_SECONDS / 2)
    machine.wait(5.0)
    assert watch() - started == pytest.approx(EXACT_SECONDS / 2)


def test_long_work_is_told_in_full(machine):
    watch = Stopwatch()
    started = watch()
    machine.work(0.3)
    assert watch() - started == pytest.approx(0.3)


def test_the_real_clocks_agree():
    watch = Stopwatch()
    started, exact = watch(), time.thread_time()
    while time.thread_time() - exact < 0.02:
        pass
    assert watch() - started >= 0.02 - EXACT_SECONDS
