"""Has streams that engines handed back ask for room one by one, those of each service in their turn."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from headrace_gateway.pick.line import Line

TICK = 0.1  # seconds

Found = TypeVar("Found")


class Lines:
    """Each service's streams that wait for room; of each line one has the turn: its event is set."""

    def __init__(self) -> None:
        self._lines: dict[str, Line[asyncio.Event]] = {}

    async def ask_in_turn(
        self, service: str, tokens: int, ask: Callable[[float], Awaitable[Found | None]]
    ) -> Found:
        """Call `ask` when it is the stream's turn, and again until it gives something, which is returned.

        `tokens`: of its answer so far. `ask` is told for how many seconds the stream has waited.
        """
        line = self._lines.setdefault(service, Line())
        turn = asyncio.Event()
        line.join(turn, tokens, monotonic())
        if len(line) == 1:
            turn.set()
        try:
            while True:
                await turn.wait()
                if (found := await ask(line.waited(turn, monotonic()))) is not None:
                    return found
                await asyncio.sleep(TICK)
                turn.clear()
                _give_turn(line)
        finally:
            line.leave(turn)
            if turn.is_set():
                _give_turn(line)
            if not line:
                del self._lines[service]


def _give_turn(line: Line[asyncio.Event]) -> None:
    first = line.first(monotonic())
    if first is not None:
        first.set()
