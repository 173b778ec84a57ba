"""The pool keeps each result, measures again what its source changed, and ends when told."""

import json
import os
import time
from dataclasses import dataclass

import pytest

from e2e.bench.runs import pool


@dataclass(frozen=True, slots=True)
class Job:
    number: int
    kind: tuple[str, ...] = ("a",)


class Here:
    """Stands in for the processes: runs each job at once, in this one."""

    def __init__(self, workers):
        self._processes = {}
        self.ended = False

    def submit(self, function, *arguments):
        from concurrent.futures import Future

        future = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, **_):
        self.ended = True


@pytest.fixture(autouse=True)
def no_processes(monkeypatch):
    here = Here(2)
    monkeypatch.setattr(pool, "_start", lambda workers: here)
    monkeypatch.setattr(pool, "_shared", pool._Shared())
    monkeypatch.setattr(pool, "_vllm_version", lambda: b"1")
    return here


done = []


def square(job):
    done.append(job.number)
    if job.number < 0:
        raise ValueError("below zero")
    return {"square": float(job.number**2), "name": "x"}


@pytest.fixture
def run(tmp_path):
    done.clear()
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.py").write_text('"""Text."""\nx = 1  # why\n')

    def run_jobs(*numbers):
        jobs = [Job(number) for number in numbers]
        return pool.run_all(jobs, square, "t", sources=[source], cache=tmp_path / "cache")

    run_jobs.source = source
    run_jobs.cache = tmp_path / "cache"
    return run_jobs


def test_results_are_kept_and_in_the_order_of_the_jobs(run):
    assert run(2, 1) == {Job(2): {"square": 4.0, "name": "x"}, Job(1): {"square": 1.0, "name": "x"}}
    assert list(run(3, 1, 2)) == [Job(3), Job(1), Job(2)]
    assert sorted(done) == [1, 2, 3], "each once"
    kept = [json.loads(path.read_text())["job"] for path in run.cache.iterdir()]
    assert sorted(job["number"] for job in kept) == [1, 2, 3]


def test_comments_change_no_figure_but_code_does(run):
    run(1)
    (run.source / "a.py").write_text('"""Other text."""\nx = 1\n')
    run(1)
    assert done == [1]
    (run.source / "a.py").write_text("x = 2\n")
    run(1)
    assert done == [1, 1]
    (run.source / "table.csv").write_text("1\n")
    run(1)
    assert done == [1, 1, 1]


def test_a_result_that_was_half_written_is_measured_again(run):
    run(1)
    for path in run.cache.iterdir():
        path.write_text('{"job"')
    assert run(1)[Job(1)]["square"] == 1
    assert done == [1, 1]


def test_a_failing_job_is_named_and_the_finished_ones_stay(run, no_processes):
    run(1)
    with pytest.raises(pool.JobError, match=r"Job\(number=-1.*failed: ValueError: below zero"):
        run(1, -1)
    assert no_processes.ended
    done.clear()
    run(1)
    assert done == []


def test_processes_start_again_when_the_source_has_changed(run, no_processes):
    run(1)
    run(2)
    assert not no_processes.ended
    os.utime(run.source / "a.py", (time.time() + 60, time.time() + 60))
    run(3)
    assert no_processes.ended


def test_results_of_source_that_is_being_edited_are_not_kept(run, monkeypatch):
    digests = iter(["before", "after"])
    monkeypatch.setattr(pool, "source_digest", lambda _: next(digests))
    os.utime(run.source / "a.py", (time.time() + 60, time.time() + 60))
    with pytest.raises(pool.JobError, match="the source changed while the processes started"):
        run(1)
    assert not run.cache.exists()


def test_the_sources_of_engine_runs_are_there():
    for source in pool.ENGINE_SOURCES:
        assert source.exists(), source
