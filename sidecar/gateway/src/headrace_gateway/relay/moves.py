"""Has streams leave engines that still answer: those that are being stopped, and those that are full or slow.

Which engines these are, and whether another may go on with their streams, pickers know. While none answers,
no stream moves.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from random import Random
from time import monotonic

from headrace_gateway.pick.rebalance import MOST_AT_ONCE, TERMINATING, Progress, Reason, Surplus, to_hand_over

TICK = 1.0  # seconds
STAY_SECONDS = 2.0  # for what is short to end where it is, which costs nobody a pause

Move = Callable[[Reason], None]
Streams = dict[Move, Callable[[], Progress]]
Ask = Callable[[], Awaitable[Mapping[str, Surplus]]]


class Moves:
    """The streams of each engine, how far each is, and how it is told to move."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._streams: dict[str, Streams] = {}  # those that asked first are told first
        self._since: dict[str, float] = {}  # when it was first heard that an engine is being stopped

    @contextmanager
    def on(self, engine: str, move: Move, progress: Callable[[], Progress]) -> Iterator[None]:
        """Call `move` while the context lasts, once or more, if a stream on `engine` had better move.

        It is told why.
        """
        streams = self._streams.setdefault(engine, {})
        streams[move] = progress
        try:
            yield
        finally:
            del streams[move]
            if not streams:
                del self._streams[engine]

    def note(self, surpluses: Mapping[str, Surplus], now: float) -> None:
        """Take in what engines shall hand over, and have streams move; `now` as in their `Progress`."""
        self._leave([engine for engine, surplus in surpluses.items() if surplus == TERMINATING], now)
        for engine, surplus in surpluses.items():
            if surplus != TERMINATING and engine in self._streams:
                streams = {move: progress() for move, progress in self._streams[engine].items()}
                for move in to_hand_over(streams, surplus, now, self._random.random()):
                    move(surplus.reason)

    def _leave(self, engines: list[str], now: float) -> None:
        """Have streams move that stayed for long enough on engines that are being stopped."""
        self._since = {engine: self._since.get(engine, now) for engine in engines}
        due = (
            move
            for engine, since in self._since.items()
            if now - since >= STAY_SECONDS
            for move in self._streams.get(engine, ())
        )
        for move in list(islice(due, MOST_AT_ONCE)):
            move(TERMINATING.reason)

    @asynccontextmanager
    async def follow(self, ask: Ask) -> AsyncIterator[None]:
        """Follow what `ask` says, for as long as the context lasts."""
        task = asyncio.create_task(self._follow(ask))
        try:
            yield
        finally:
            task.cancel()

    async def _follow(self, ask: Ask) -> None:
        while True:
            self.note(await ask(), monotonic())
            await asyncio.sleep(TICK)
