"""What one relay takes on: beyond it, streams are handed on all the same, but go on nowhere else."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

LATE_SECONDS = 0.25  # that tokens wait here: new streams go round a relay that is this slow
TICK = 0.1  # seconds
WEIGHT = 0.05  # of the last tick, so that a burst of long prompts is no slowness


@dataclass(slots=True)
class Held:
    """Bytes of request bodies that are kept for another engine, `most` at once, of bodies up to `largest`."""

    most: int
    largest: int
    bytes: int = 0

    @contextmanager
    def keep(self, size: int | None) -> Iterator[bool]:
        """Count a body of this size (None: not known) for the context, if there is room for it: True."""
        counted = self.largest if size is None else size
        if self.bytes + counted > self.most:
            yield False
            return
        self.bytes += counted
        try:
            yield True
        finally:
            self.bytes -= counted


class Delay:
    """How long what is ready waits for this process, in seconds; follows it while `follow` runs."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @property
    def is_late(self) -> bool:
        """Whether new streams had better go to engines directly."""
        return self.seconds > LATE_SECONDS

    def note(self, late: float) -> None:
        """Take in how late one tick was."""
        self.seconds += WEIGHT * (late - self.seconds)

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[None]:
        """Follow it for as long as the context lasts."""
        task = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            task.cancel()

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + TICK
            await asyncio.sleep(TICK)
            self.note(loop.time() - due)
