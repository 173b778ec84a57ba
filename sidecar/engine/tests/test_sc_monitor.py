"""The monitor beside a fake engine: load, totals over restarts, lost records, files that can't be read."""

from dataclasses import replace

import pytest
from sc_fake_engine import FakeEngine, finished

from headrace_engine.control.paths import stats_paths
from headrace_engine.control.phase import PhaseInfo, write_phase
from headrace_engine.control.records import StepSample, TurnCode
from headrace_sidecar.monitor import Monitor
from headrace_sidecar.state import GONE_AFTER


@pytest.fixture
def told():
    return []


@pytest.fixture
def monitor(tmp_path, told):
    made = Monitor(stats_paths(tmp_path), told.extend)
    made.observe(0.0)
    return made


def test_without_an_engine_nothing_serves(monitor):
    monitor.observe(1.0)
    assert monitor.engine.state == "Starting"
    assert not monitor.load.serving
    assert monitor.load.boot == ""


def test_the_phase_of_a_start_is_read_as_it_changes(monitor, tmp_path):
    (tmp_path / "stats").mkdir()
    for time, phase in enumerate(["Downloading", "Loading", "Compiling"], 1):
        write_phase(stats_paths(tmp_path).phase, PhaseInfo(phase, float(time)))
        monitor.observe(time)
        assert (monitor.engine.phase, monitor.engine.phase_since) == (phase, time)


def test_the_load_is_what_the_engine_reported(monitor, tmp_path):
    engine = FakeEngine(tmp_path)
    engine.report(
        step=5, running=3, waiting=2, waiting_prefill_tokens=900, waiting_kv_blocks=57, free_kv_blocks=40
    )
    engine.report(arrivals=10, arrived_tokens=3000, finishes=5, unfinished_prefill_tokens=12)
    monitor.observe(1.0)
    load = monitor.load
    assert (load.boot, load.serving, load.time) == (engine.board.boot, True, engine.record.time)
    assert (load.running, load.waiting, load.waiting_prefill_tokens, load.waiting_kv_blocks) == (
        3,
        2,
        900,
        57,
    )
    assert (load.free_kv_blocks, load.total_kv_blocks, load.block_size) == (40, 100, 16)
    assert (load.arrivals, load.arrived_tokens, load.finishes, load.unfinished_prefill_tokens) == (
        10,
        3000,
        5,
        12,
    )
    assert (load.prefill_tokens_per_second, load.mean_output_tokens) == (0, 0)
    engine.close()


def test_rates_come_from_steps_and_finished_requests(monitor, tmp_path, told):
    engine = FakeEngine(tmp_path)
    for tokens in range(10, 60):
        engine.steps.append(StepSample(tokens, 0, 0, 0, 0.01 + tokens * 1e-4))
    engine.finished.append(finished(prompt_tokens=100, output_tokens=7))
    engine.report()
    monitor.observe(1.0)
    assert monitor.load.prefill_tokens_per_second == pytest.approx(2048 / (0.01 + 0.2048), rel=0.01)
    assert monitor.load.step_seconds == pytest.approx(0.0135, rel=0.2)
    assert (monitor.load.mean_prompt_tokens, monitor.load.mean_output_tokens) == (100, 7)
    assert [request.output_tokens for request in told] == [7]
    monitor.observe(2.0)
    assert len(told) == 1
    engine.close()


def test_counts_go_on_when_the_engine_restarts(monitor, tmp_path, told):
    first = FakeEngine(tmp_path)
    first.report(arrivals=10, preemptions=3, step=100)
    monitor.observe(1.0)
    first.finished.append(finished(output_tokens=1))
    first.close()
    second = FakeEngine(tmp_path, started_at=2000.0)
    second.finished.append(finished(output_tokens=2))
    monitor.observe(2.0)
    assert monitor.engine.state == "Starting"
    assert not monitor.load.serving
    assert (monitor.load.boot, monitor.load.arrivals) == (second.board.boot, 0)
    second.report(arrivals=2, preemptions=1, step=5)
    monitor.observe(3.0)
    assert (monitor.engine.state, monitor.load.boot) == ("Idle", second.board.boot)
    assert [monitor.totals.total(name) for name in ("arrivals", "preemptions", "step")] == [12, 4, 105]
    assert monitor.totals.boots == 2
    assert monitor.load.arrivals == 2
    assert [request.output_tokens for request in told] == [1, 2]
    second.close()


def test_an_engine_that_stops_beating_stops_serving(monitor, tmp_path):
    engine = FakeEngine(tmp_path)
    engine.report(running=2)
    monitor.observe(1.0)
    assert monitor.load.serving
    monitor.observe(1.1 + GONE_AFTER)
    assert monitor.engine.state == "Gone"
    assert not monitor.load.serving
    assert monitor.record.running == 0
    engine.report()
    monitor.observe(20.0)
    assert monitor.load.serving
    engine.close()


def test_a_torn_board_is_the_last_whole_one(monitor, tmp_path):
    engine = FakeEngine(tmp_path)
    engine.report(running=2)
    monitor.observe(1.0)
    board = stats_paths(tmp_path).board
    with board.open("r+b") as file:
        file.seek(60)
        file.write(b"\xff")
    monitor.observe(2.0)
    assert (monitor.engine.state, monitor.load.running) == ("Running", 2)
    engine.close()


@pytest.mark.parametrize("name", ["boot", "board", "steps", "finished"])
def test_files_that_cannot_be_understood_are_no_engine(monitor, tmp_path, name):
    (tmp_path / "stats").mkdir()
    getattr(stats_paths(tmp_path), name).write_bytes(b"\x93NUMPY" * 100)
    monitor.observe(1.0)
    assert monitor.engine.state == "Starting"


def test_lost_records_are_counted(monitor, tmp_path):
    engine = FakeEngine(tmp_path)
    for n in range(100):
        engine.steps.append(StepSample(1, 0, 0, 0, 0.01))
        engine.finished.append(finished(output_tokens=n))
    monitor.observe(1.0)
    assert (monitor.lost.steps, monitor.lost.finished) == (36, 36)
    engine.close()


def test_estimates_survive_a_restart_of_the_engine(monitor, tmp_path):
    for boot in range(2):
        engine = FakeEngine(tmp_path, started_at=1000.0 * (boot + 1))
        engine.report()
        if boot == 0:
            engine.finished.append(finished(output_tokens=9))
        monitor.observe(float(boot))
        engine.close()
    assert monitor.load.mean_output_tokens == 9
    assert replace(monitor.load, time=0).arrivals == 0


def test_waits_for_turns_slow_the_engine_down_in_what_is_told_of_it(monitor, tmp_path):
    engine = FakeEngine(tmp_path)
    for tokens in range(10, 60):
        engine.steps.append(StepSample(tokens, 0, 0, 0, 0.01))
    engine.report(turn_wait_seconds=0.0)
    monitor.observe(1.0)
    alone = monitor.load.step_seconds
    engine.report(turn_wait_seconds=0.5)
    monitor.observe(2.0)
    assert monitor.load.step_seconds == pytest.approx(2 * alone, rel=0.1)
    engine.close()


def test_an_engine_that_has_long_not_reached_its_turn_server_is_told_of(monitor, tmp_path):
    engine, told = FakeEngine(tmp_path), []
    for now, code in ((1.0, "ALONE"), (2.0, "IN_TURNS"), (3.0, "ALONE"), (32.0, "ALONE"), (33.0, "ALONE")):
        engine.report(turn_code=TurnCode[code])
        monitor.observe(now)
        told.append(monitor.is_without_turns(now))
    assert told == [False, False, False, False, True]
    engine.report(turn_code=TurnCode.IN_TURNS)
    monitor.observe(34.0)
    assert not monitor.is_without_turns(34.0)
    engine.close()
