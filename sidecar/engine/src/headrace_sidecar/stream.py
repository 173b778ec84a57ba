"""One load report to many readers: `/load/stream`.

Each report is encoded once. A reader always gets the newest one: if it reads slowly, those between are
skipped, so it holds back nobody and costs no memory. Whoever does not read at all for a while is let go.
"""

from __future__ import annotations

import asyncio
from dataclasses import fields
from operator import attrgetter
from typing import Protocol

from headrace_engine.contracts import LoadReport, dumps

REPEAT_AFTER = 1.0  # seconds after which an unchanged report is sent again, as a sign of life
WRITE_SECONDS = 10.0  # seconds that a reader may leave its buffer full


# What makes a report worth sending; its clock and its slowly moving estimates ride along.
RIDING = {"time", "prefill_tokens_per_second", "step_seconds", "mean_prompt_tokens", "mean_output_tokens"}
_load = attrgetter(*(field.name for field in fields(LoadReport) if field.name not in RIDING))


class Sink(Protocol):
    """Receiver of lines: one reader of the stream."""

    async def write(self, data: bytes) -> None:
        """Send; waits while the reader's buffer is full."""


class News:
    """Which reports are worth sending: those that tell something new, or come a while after the last."""

    def __init__(self) -> None:
        self._load: tuple[object, ...] = ()
        self._published_at = float("-inf")

    def is_worth_sending(self, report: LoadReport, now: float) -> bool:
        """Tell whether to send `report` at `now` (monotonic seconds); if so it counts as sent."""
        load = _load(report)
        if load == self._load and now - self._published_at < REPEAT_AFTER:
            return False
        self._load, self._published_at = load, now
        return True


class Broadcast:
    """The newest report, and everybody who waits for the next."""

    def __init__(self) -> None:
        self._line = b""
        self._news = News()
        self._next: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closed = False

    def offer(self, report: LoadReport, now: float) -> None:
        """Publish `report` if it tells something new or the last one is old; `now` in monotonic seconds."""
        if not self._news.is_worth_sending(report, now):
            return
        self._line = dumps(report).encode() + b"\n"
        self._wake()

    def close(self) -> None:
        """End the streams of all readers."""
        self._closed = True
        self._wake()

    async def feed(self, sink: Sink) -> None:
        """Send the present report and each later one, until closed.

        Raises what the sink raises, and TimeoutError if it takes nothing for `WRITE_SECONDS`.
        """
        while not self._closed:
            following = self._next
            if self._line:
                async with asyncio.timeout(WRITE_SECONDS):
                    await sink.write(self._line)
            await asyncio.shield(following)

    def _wake(self) -> None:
        woken, self._next = self._next, asyncio.get_running_loop().create_future()
        woken.set_result(None)
