"""Simulations side by side, each in a process of its own, with a progress bar on stderr."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import connection
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from headrace_operator.simulate.usage_error import UsageError

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")

PRELOADED = ["headrace_operator.simulate.quiet", "headrace_operator.simulate.worker"]
MOST = 8  # processes; each takes about 1 GiB

# For the workers, before anything is imported there.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}


class Processes:
    """Processes that can simulate; `at_once`: how many there are."""

    def __init__(self, executor: ProcessPoolExecutor, progress: Progress, at_once: int) -> None:
        self.at_once = at_once
        self._executor = executor
        self._progress = progress

    def run(self, function: Callable[[_Job], _Result], jobs: Sequence[_Job], what: str) -> list[_Result]:
        """Return what `function` makes of each job, in order; `what` they are for is shown beside the bar."""
        task = self._progress.add_task(what, total=len(jobs))
        futures = [self._executor.submit(function, job) for job in jobs]
        for future in futures:
            future.add_done_callback(partial(self._advance, task))
        return [future.result() for future in futures]

    def _advance(self, task: TaskID, done: Future[_Result]) -> None:
        if not done.cancelled():
            self._progress.advance(task)


@contextmanager
def open_processes() -> Iterator[Processes]:
    """Start as many processes as the machine has cores, within reason; raises UsageError if one dies."""
    at_once = max(2, min(os.cpu_count() or 2, MOST))
    os.environ.update(ENVIRONMENT)
    context = multiprocessing.get_context("forkserver")  # imports vLLM once, which takes seconds
    context.set_forkserver_preload(PRELOADED)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
    with ProcessPoolExecutor(at_once, context, initializer=_end_with_parent) as executor, progress:
        try:
            yield Processes(executor, progress, at_once)
        except BrokenProcessPool as error:
            raise UsageError(
                f"a simulation ended by itself, most likely for want of memory ({at_once} run at once and "
                "take about 1 GiB each); --window takes a shorter stretch"
            ) from error
        finally:
            executor.shutdown(wait=False, cancel_futures=True)


def _end_with_parent() -> None:
    """Have this process end when the command does, by Ctrl-C or however; a pool's processes would stay."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_exit, args=(parent.sentinel,), daemon=True).start()


def _wait_and_exit(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)
