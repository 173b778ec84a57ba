"""Has streams leave engines that are being stopped, while these still answer.

Which engines these are, and whether another may go on with their streams, pickers know. While none answers,
no stream moves.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from time import monotonic

TICK = 1.0  # seconds
STAY_SECONDS = 2.0  # for what is short to end where it is, which costs nobody a pause
MOST_AT_ONCE = 32  # a tick: another engine computes their prompts, and new requests wait meanwhile

Move = Callable[[], None]


class Moves:
    """The streams of each engine, and how each is told to move."""

    def __init__(self) -> None:
        self._streams: dict[str, dict[Move, None]] = {}  # those that asked first are told first
        self._since: dict[str, float] = {}  # when it was first heard that an engine is being stopped

    @contextmanager
    def on(self, engine: str, move: Move) -> Iterator[None]:
        """Call `move` while the context lasts, once or more, if a stream on `engine` had better move."""
        streams = self._streams.setdefault(engine, {})
        streams[move] = None
        try:
            yield
        finally:
            del streams[move]
            if not streams:
                del self._streams[engine]

    def note(self, to_leave: Collection[str], now: float) -> None:
        """Take in which engines are to be left, and have streams move that stayed for long enough."""
        self._since = {engine: self._since.get(engine, now) for engine in to_leave}
        due = (
            move
            for engine, since in self._since.items()
            if now - since >= STAY_SECONDS
            for move in self._streams.get(engine, ())
        )
        for move in list(islice(due, MOST_AT_ONCE)):
            move()

    @asynccontextmanager
    async def follow(self, ask: Callable[[], Awaitable[Collection[str]]]) -> AsyncIterator[None]:
        """Follow what `ask` says, for as long as the context lasts."""
        task = asyncio.create_task(self._follow(ask))
        try:
            yield
        finally:
            task.cancel()

    async def _follow(self, ask: Callable[[], Awaitable[Collection[str]]]) -> None:
        while True:
            self.note(await ask(), monotonic())
            await asyncio.sleep(TICK)
