"""Run many small jobs in a pool of processes, store each result, and show how far it is.

A job is a frozen dataclass of plain values, and a module-level function makes figures of it. Its result is
stored under the user's cache folder by the job, the function and a digest of the source that the figures
depend on, so that an interrupted run goes on where it was and a changed policy is measured anew. File names
and imports are part of the digest, comments and docstrings are not.
"""

import ast
import dataclasses
import functools
import hashlib
import importlib.util
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from e2e.cluster.places import REPOSITORY
from e2e.cluster.places import cache as cache_folder

Job = TypeVar("Job")
Figures = Mapping[str, float | str]

ENGINE = REPOSITORY / "engine_patches/src/headrace_engine"
ENGINE_SOURCES = (ENGINE, REPOSITORY / "e2e/data", REPOSITORY / "e2e/bench/runs/workloads.py")
NO_SOURCE = {"SOURCES.md", "known_error.json", "known_error.py"}  # no figure depends on them
CACHE = cache_folder() / "bench"
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # vLLM walks over sets of strings
    "OMP_NUM_THREADS": "1",  # two processes share two cores
}


class JobError(RuntimeError):
    """A job that failed; the message names it."""


def run_all(
    jobs: Sequence[Job],
    function: Callable[[Job], Figures],
    title: str,
    *,
    sources: Sequence[Path] = ENGINE_SOURCES,
    workers: int = 2,
    cache: Path = CACHE,
) -> dict[Job, Figures]:
    """Run the jobs, and return the figures of each. Ctrl-C ends it at once; what is finished stays stored.

    Raises JobError when a job fails, or the source changes before the first has finished; those that had
    finished stay stored all the same.
    """
    taken_at = time.time()
    digest = source_digest(sources)
    places = {job: cache / f"{_key(job, function, digest)}.json" for job in jobs}
    found = {job: stored for job, place in places.items() if (stored := _read(place)) is not None}
    missing = [job for job in places if job not in found]
    measured = 0
    with _progress() as progress:
        task = progress.add_task(title, total=len(places), completed=len(found))
        for job, figures in _results(missing, function, _processes_with(sources, workers)):
            if not measured and _changed_at(sources) > taken_at and source_digest(sources) != digest:
                raise JobError("the source changed while the processes started: start again")
            measured += 1
            _store(places[job], job, figures)
            found[job] = figures
            progress.advance(task)
    return {job: found[job] for job in jobs}


def source_digest(sources: Sequence[Path]) -> str:
    """Digest all files in these places: Python by its syntax tree without docstrings, others by content."""
    digest = hashlib.sha256(_vllm_version())
    for file in _files(sources):
        content = file.read_bytes()
        if file.suffix == ".py":
            content = _meaning(content)
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _files(sources: Sequence[Path]) -> Iterator[Path]:
    for source in sources:
        for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if file.is_file() and "__pycache__" not in file.parts and file.name not in NO_SOURCE:
                yield file


def _vllm_version() -> bytes:
    """Find vLLM's version without importing it, which takes ten seconds; it goes by several names."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise JobError("vLLM is not installed here: run `make env`")
    return Path(spec.origin).with_name("_version.py").read_bytes()


@functools.cache
def _meaning(source: bytes) -> bytes:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_text(each)]
    return ast.dump(tree).encode()


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _key(job: object, function: Callable[..., Figures], digest: str) -> str:
    assert dataclasses.is_dataclass(job)
    assert not isinstance(job, type)
    name = f"{type(job).__qualname__}:{function.__qualname__}"  # no module: a move changes no figure
    text = json.dumps([name, digest, dataclasses.asdict(job)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _read(place: Path) -> Figures | None:
    try:
        figures: Figures = json.loads(place.read_text())["figures"]
    except (OSError, ValueError, KeyError):
        return None
    return figures


def _store(place: Path, job: object, figures: Figures) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"job": dataclasses.asdict(job), "figures": dict(figures)}))  # type: ignore[call-overload]
    draft.replace(place)


def _results(
    jobs: Sequence[Job], function: Callable[[Job], Figures], processes: Callable[[], ProcessPoolExecutor]
) -> Iterator[tuple[Job, Figures]]:
    if not jobs:
        return
    pool = processes()
    running: dict[Future[Figures], Job] = {pool.submit(function, job): job for job in jobs}
    try:
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield _outcome(running.pop(future), future)
    except BaseException:  # Ctrl-C above all: nothing keeps computing behind the user's back
        _end()
        raise


def _outcome(job: Job, future: Future[Figures]) -> tuple[Job, Figures]:
    try:
        return job, future.result()
    except Exception as error:
        raise JobError(f"{job} failed: {type(error).__name__}: {error}") from error


@dataclasses.dataclass(slots=True)
class _Shared:
    """One pool for all calls: each of its processes imports vLLM, once."""

    pool: ProcessPoolExecutor | None = None
    workers: int = 0
    started_at: float = 0.0


_shared = _Shared()


def _processes_with(sources: Sequence[Path], workers: int) -> Callable[[], ProcessPoolExecutor]:
    """Gives the shared pool; a new one if the source changed since its processes started."""

    def get() -> ProcessPoolExecutor:
        if _shared.workers != workers or _changed_at(sources) > _shared.started_at:
            _end()
        if _shared.pool is None:
            _shared.started_at, _shared.workers = time.time(), workers
            _shared.pool = _start(workers)
        return _shared.pool

    return get


def _changed_at(sources: Sequence[Path]) -> float:
    """Return when the newest of these files changed, in unix seconds."""
    return max(file.stat().st_mtime for file in _files(sources))


def _start(workers: int) -> ProcessPoolExecutor:
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)  # a process started afresh reads its hash seed from there
    try:
        pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin)
        for _ in range(workers):
            pool.submit(os.getpid)  # starts them while the environment holds
        return pool
    finally:
        os.environ.clear()
        os.environ.update(before)


def _end() -> None:
    pool, _shared.pool = _shared.pool, None
    if pool is None:
        return
    processes = list((pool._processes or {}).values())  # noqa: SLF001  (there is no public way)
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


def _begin() -> None:
    """Begin a process: Ctrl-C is for the parent, and what vLLM warns of on this CPU does not matter here."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("vllm").setLevel(logging.ERROR)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description:32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
