"""Keyed work: a key waits once, is never worked on twice at a time, and waits again if it changed meanwhile.

    add(key) ──► due now ──► worker ──► finish_key(key)    added meanwhile? due again at once
                                    └─► retry_key(key)     due after a delay that doubles, with jitter

Adding is cheap and never waits, so event handlers can do it for every event.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_FIRST_RETRY = 1.0
_LAST_RETRY = 60.0


class WorkQueue(Generic[K]):
    """For one event loop. `clock` is in seconds; `jitter` gives a factor for each retry's delay."""

    def __init__(
        self,
        clock: Callable[[], float] | None = None,
        jitter: Callable[[], float] = lambda: random.uniform(0.8, 1.2),  # noqa: S311
    ) -> None:
        self._clock = clock or asyncio.get_running_loop().time
        self._jitter = jitter
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._working: set[K] = set()
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: K, delay: float = 0.0) -> None:
        """Have the key worked on after `delay` seconds, or earlier if it is due earlier already."""
        due = self._clock() + delay
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))
        self._changed.set()

    def finish_key(self, key: K) -> None:
        """Count the key as worked on; its retries start over."""
        self._failures.pop(key, None)
        self._finish(key)

    def retry_key(self, key: K, at_least: float = 0.0) -> None:
        """Have the key worked on again after a failure: later, and not before `at_least` seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(_FIRST_RETRY * 2.0 ** min(failures, 20), _LAST_RETRY)
        self._finish(key)
        self.add(key, max(at_least, min(delay * self._jitter(), _LAST_RETRY)))

    async def next_key(self) -> K:
        """Wait for a key that is due and not being worked on; call `finish_key` or `retry_key` then."""
        while True:
            key, wait = self._next()
            if key is not None:
                return key
            self._changed.clear()
            try:
                async with asyncio.timeout(wait):  # Python 3.11's `wait_for` may swallow a cancellation
                    await self._changed.wait()
            except TimeoutError:
                continue

    @property
    def depth(self) -> int:
        """Keys that are due and wait for a worker."""
        now = self._clock()
        return sum(1 for due in self._due.values() if due <= now)

    @property
    def age(self) -> float:
        """Seconds that the key due longest has waited for a worker."""
        now = self._clock()
        return max((now - due for due in self._due.values() if due <= now), default=0.0)

    def _next(self) -> tuple[K | None, float | None]:
        """Return a key to work on, or how long until one may be."""
        blocked: list[tuple[float, int, K]] = []
        found: K | None = None
        wait: float | None = None
        while self._heap:
            due, _, key = self._heap[0]
            if self._due.get(key) != due:
                heapq.heappop(self._heap)  # superseded by an earlier time
            elif due > self._clock():
                wait = due - self._clock()
                break
            elif key in self._working:
                blocked.append(heapq.heappop(self._heap))
            else:
                heapq.heappop(self._heap)
                del self._due[key]
                self._working.add(key)
                found = key
                break
        for entry in blocked:
            heapq.heappush(self._heap, entry)
        return found, wait

    def _finish(self, key: K) -> None:
        self._working.discard(key)
        self._changed.set()
