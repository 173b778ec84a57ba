"""Reads long and intricate prompts in a process of its own, so that they hold up nobody else's pick.

A body within every limit can take a second to parse and to walk, such as a million empty messages; on the
event loop all picks of all services would wait for that. Size and separators tell beforehand what takes long.
Services take turns, and each may have few bodies waiting. What is not read in time is refused: it may hold
what Envoy must not let through.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict, deque
from typing import Self, cast

from headrace_gateway.pick import prompt_process
from headrace_gateway.pick.prompt_process import LENGTH, to_prompt
from headrace_gateway.pick.tokens import Prompt

# What is less than all of these is read within about 3 ms.
MOST_BYTES = 512 << 10
MOST_VALUES = 10_000  # of lists and objects, by their commas
MOST_OBJECTS = 500  # by their braces
SHORT_BYTES = 4096  # that nothing can be wrong with
MOST_WAITING = 4  # bodies of one service
READ_SECONDS = 0.2  # in all; Envoy waits 250 ms
PIECE_BYTES = 128 << 10  # handed to the process without looking what else there is to do

Queue = deque[tuple[bytes, asyncio.Future[Prompt]]]


class ReaderBusyError(Exception):
    """A service has as many long bodies waiting as it may, or one was not read in time."""


def takes_long(body: bytes) -> bool:
    """Tell whether a body could take more than a few milliseconds to read; separators in texts count, too."""
    return len(body) > SHORT_BYTES and (
        len(body) > MOST_BYTES or body.count(b",") > MOST_VALUES or body.count(b"{") > MOST_OBJECTS
    )


class PromptReader:
    """One process that reads prompts; entering starts it, leaving ends it."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._queues: OrderedDict[str, Queue] = OrderedDict()  # by service, whoever's turn it is first
        self._working: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start the process, so that it is there before the first body."""
        self._process = await _start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the process; whoever still waits for it gets no answer."""
        if self._working is not None:
            self._working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._working
        await self._end()

    async def read(self, service: str, body: bytes) -> Prompt:
        """Measure a request body for a service; raises BadRequestError, ReaderBusyError."""
        queue = self._queues.setdefault(service, deque())
        if len(queue) >= MOST_WAITING:
            raise ReaderBusyError
        measured: asyncio.Future[Prompt] = asyncio.get_running_loop().create_future()
        queue.append((body, measured))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work(), name="prompt reader")
        try:
            async with asyncio.timeout(READ_SECONDS):
                return await measured
        except TimeoutError:
            raise ReaderBusyError from None

    async def _work(self) -> None:
        while self._queues:
            service, queue = self._queues.popitem(last=False)
            body, measured = queue.popleft()
            if queue:
                self._queues[service] = queue
            if measured.done():
                continue  # whoever asked has gone
            try:
                prompt = await self._ask(body)
            except (OSError, EOFError):
                await self._end()
                _fail(measured, ReaderBusyError())
            except ValueError as error:
                _fail(measured, error)
            else:
                if not measured.done():
                    measured.set_result(prompt)

    async def _ask(self, body: bytes) -> Prompt:
        """Have the process read a body; raises BadRequestError, or OSError or EOFError if it died."""
        if self._process is None:
            self._process = await _start()
        writer = cast("asyncio.StreamWriter", self._process.stdin)
        reader = cast("asyncio.StreamReader", self._process.stdout)
        writer.write(len(body).to_bytes(LENGTH))
        for start in range(0, len(body), PIECE_BYTES):
            writer.write(body[start : start + PIECE_BYTES])
            await writer.drain()
            await asyncio.sleep(0)  # a pipe whose reader keeps up would take all at once
        parts = [await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH))) for _ in range(2)]
        return to_prompt(*parts)

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _fail(measured: asyncio.Future[Prompt], error: Exception) -> None:
    if not measured.done():
        measured.set_exception(error)


async def _start() -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", prompt_process.__name__, stdin=PIPE, stdout=PIPE
    )
