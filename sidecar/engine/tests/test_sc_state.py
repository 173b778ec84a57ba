"""The engine's state, on a clock that the tests move."""

from dataclasses import replace

import pytest
from sc_fake_engine import IDLE

from headrace_engine.control.boot import BootInfo
from headrace_engine.control.phase import PhaseInfo
from headrace_sidecar.state import (
    GONE_AFTER,
    HUNG_AFTER,
    SILENT,
    SILENT_AFTER,
    History,
    Observation,
    classify,
    extend_history,
)

BUSY = IDLE._replace(running=2, waiting=1)
INFO = BootInfo("a", 1, "0.32.0", "0.1.0", "Policy", started_at=900.0)
STOCK = replace(INFO, mode="Stock", reason="vLLM 0.40 is not supported")


class Observer:
    """Looks at an engine as the sidecar does, at times that the test chooses."""

    def __init__(self):
        self.now = 5000.0
        self.history = History()

    def see(self, found, after=0.0):
        self.now += after
        self.history = extend_history(self.history, found, self.now)
        return classify(self.history, found, self.now)


@pytest.fixture
def observer():
    return Observer()


def beats(record, seconds, **progress):
    """Looks at an engine that beats once a second for `seconds`."""
    for n in range(int(seconds) + 1):
        changes = {name: getattr(record, name) + step * n for name, step in progress.items()}
        yield Observation(INFO, "a", record._replace(time=record.time + n, **changes))


def test_an_engine_that_never_reported_is_starting(observer):
    for _ in range(1000):
        assert observer.see(Observation(), after=10).state == "Starting"
    assert observer.see(Observation(info=INFO)).boot == "a"


def test_idle_for_hours_is_idle(observer):
    states = {observer.see(found, after=1).state for found in beats(IDLE, 7200)}
    assert states == {"Idle"}


def test_advancing_steps_are_running_however_long(observer):
    states = {observer.see(found, after=1).state for found in beats(BUSY, 300, step=1)}
    assert states == {"Running"}


def test_requests_without_a_step_hang(observer):
    seen = [observer.see(found, after=1) for found in beats(BUSY, HUNG_AFTER + 1)]
    assert {engine.state for engine in seen[:-1]} == {"Running"}
    assert seen[-1].state == "Hung"
    assert seen[-1].reason == "2 requests running, 1 waiting, but no step for 31 s"


def test_a_request_after_a_long_idle_time_does_not_hang_at_once(observer):
    for found in beats(IDLE, 600):
        observer.see(found, after=1)
    assert observer.see(Observation(INFO, "a", BUSY._replace(time=2000.0)), after=1).state == "Running"


def test_a_hung_engine_that_steps_again_runs(observer):
    for found in beats(BUSY, HUNG_AFTER + 5):
        observer.see(found, after=1)
    assert (
        observer.see(Observation(INFO, "a", BUSY._replace(time=3000.0, step=1)), after=1).state == "Running"
    )


@pytest.mark.parametrize("record", [IDLE, BUSY])
def test_a_board_that_stands_still_is_gone(observer, record):
    found = Observation(INFO, "a", record)
    assert observer.see(found).state in ("Idle", "Running")
    assert observer.see(found, after=GONE_AFTER).state in ("Idle", "Running")
    engine = observer.see(found, after=0.1)
    assert (engine.state, engine.reason) == ("Gone", "no sign of life for 10 s")


def test_the_engines_clock_does_not_matter(observer):
    for time in (1e9, 5.0, 4e9, 4e9 - 1):
        assert (
            observer.see(Observation(None, "a", IDLE._replace(time=time)), after=GONE_AFTER).state == "Idle"
        )


def test_a_new_boot_is_starting_until_it_reports_and_then_itself(observer):
    old = Observation(INFO, "a", BUSY)
    observer.see(old)
    assert observer.see(old, after=60).state == "Gone"
    again = replace(INFO, boot="b", started_at=BUSY.time + 50)
    engine = observer.see(Observation(again, "a", BUSY), after=1)
    assert (engine.state, engine.boot) == ("Starting", "b")
    engine = observer.see(Observation(again, "b", IDLE._replace(time=BUSY.time + 60)), after=1)
    assert (engine.state, engine.boot, engine.vllm_version) == ("Idle", "b", "0.32.0")


def test_a_board_newer_than_the_boot_file_counts(observer):
    engine = observer.see(Observation(INFO, "b", IDLE._replace(time=INFO.started_at + 500)))
    assert (engine.state, engine.boot, engine.vllm_version) == ("Idle", "b", "")


def test_stock_says_why(observer):
    for _ in range(3):
        engine = observer.see(Observation(STOCK), after=3600)
        assert (engine.state, engine.reason) == ("Stock", "vLLM 0.40 is not supported")


def test_stock_after_a_boot_with_policy(observer):
    observer.see(Observation(INFO, "a", BUSY))
    later = replace(STOCK, boot="b", started_at=BUSY.time + 5)
    assert observer.see(Observation(later, "a", BUSY), after=5).state == "Stock"


def test_an_engine_that_serves_without_a_plugin_is_stock_after_a_while(observer):
    found = Observation(answering=True)
    assert observer.see(found).state == "Starting"
    assert observer.see(found, after=SILENT_AFTER - 0.1).state == "Starting"
    engine = observer.see(found, after=0.1)
    assert (engine.state, engine.reason) == ("Stock", SILENT)
    assert observer.see(Observation(answering=False), after=1).state == "Starting"
    assert observer.see(Observation(INFO, "a", IDLE, answering=True), after=60).state == "Idle"


def test_the_phase_of_a_start_is_told_until_the_engine_reports(observer):
    phase = PhaseInfo("Compiling", 950.0)
    engine = observer.see(Observation(phase=phase))
    assert (engine.state, engine.phase, engine.phase_since) == ("Starting", "Compiling", 950.0)
    engine = observer.see(Observation(INFO, "a", IDLE, phase=phase), after=1)
    assert (engine.state, engine.phase, engine.phase_since) == ("Idle", "", 0.0)
    engine = observer.see(Observation(INFO, "a", IDLE, phase=PhaseInfo("Loading", 1000.0)), after=60)
    assert (engine.state, engine.phase) == ("Gone", "Loading")
