"""The worker tasks: take keys from the queue, reconcile, and come back when asked or when it failed.

Failures back off per key; nothing that one service does can stop the others. Before the first, and every
RESYNC seconds, what the watches missed is looked for, and from time to time all keys are looked at again: who
begins to lead must not act on what a standby has missed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable

from headrace_operator.api import Key
from headrace_operator.errors import ApiError
from headrace_operator.metrics import QUEUE_AGE, QUEUE_DEPTH, RECONCILE_SECONDS
from headrace_operator.run.workqueue import WorkQueue

_WORKERS = 8  # each waits for the API server most of the time
# Seconds. With the next two, what was missed is noticed within a minute of the API server's return.
_RESYNC = 45.0
_RESYNC_AGAIN = 15.0  # after one that failed
_FIRST_RETRY_SECONDS = 2.0  # after the first, for which all wait
_ALL_EVERY = 13  # resyncs
_LONGEST = 100.0  # seconds for one reconcile; a slow API server must not make it look stuck
_STUCK = 120.0  # seconds; only a reconcile that blocks takes longer

logger = logging.getLogger(__name__)

Reconcile = Callable[[Key], Awaitable[float | None]]
Resync = Callable[[bool], Awaitable[None]]  # whether to have all keys looked at


class Workers:
    """A fixed number of tasks over one queue."""

    def __init__(self, queue: WorkQueue[Key], reconcile: Reconcile, resync: Resync) -> None:
        self._queue = queue
        self._reconcile = reconcile
        self._resync = resync
        self._tasks: list[asyncio.Task[None]] = []
        self._started: dict[Key, float] = {}
        self._current = asyncio.Event()  # what the watches missed is known

    def start(self) -> None:
        """Start the tasks, also again after a stop."""
        self._current.clear()
        self._tasks = [asyncio.create_task(self._work(), name=f"worker {i}") for i in range(_WORKERS)]
        self._tasks.append(asyncio.create_task(self._resync_for_ever(), name="resync"))

    async def stop(self) -> None:
        """End the tasks; a reconcile that is cut off is repeated by the next process."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    @property
    def alive(self) -> bool:
        """All tasks run, if they were started, and none is stuck. The API server's health plays no part."""
        now = time.monotonic()
        return not any(task.done() for task in self._tasks) and all(
            now - since < _STUCK for since in self._started.values()
        )

    async def _work(self) -> None:
        await self._current.wait()
        while True:
            key = await self._queue.next_key()
            QUEUE_DEPTH.set(self._queue.depth)
            QUEUE_AGE.set(self._queue.age)
            self._started[key] = began = time.monotonic()
            try:
                RECONCILE_SECONDS.labels(await self._one(key)).observe(time.monotonic() - began)
            except asyncio.CancelledError:
                self._queue.retry_key(key)  # whoever starts the tasks again goes on from here
                raise
            finally:
                del self._started[key]

    async def _one(self, key: Key) -> str:
        """Reconcile once; the result for the metrics."""
        try:
            async with asyncio.timeout(_LONGEST):
                again = await self._reconcile(key)
        except TimeoutError:
            logger.warning("%s: not done within %.0f s; it goes on later", key, _LONGEST)
            self._queue.retry_key(key)
            return "timeout"
        except ApiError as error:
            logger.warning("%s: %s", key, error)
            self._queue.retry_key(key, error.retry_after)
            return "conflict" if error.code == 409 else "api_error"
        except Exception:
            logger.exception("%s: reconcile failed", key)
            self._queue.retry_key(key)
            return "error"
        self._queue.finish_key(key)
        if again is not None:
            self._queue.add(key, again)
        return "ok"

    async def _resync_for_ever(self) -> None:
        for number in itertools.count():
            try:
                await self._resync(not self._current.is_set() or number % _ALL_EVERY == 0)
                self._current.set()
                wait = _RESYNC
            except ApiError as error:
                logger.warning("resync: %s", error)
                wait = max(
                    _RESYNC_AGAIN if self._current.is_set() else _FIRST_RETRY_SECONDS, error.retry_after
                )
            await asyncio.sleep(wait)
