"""One watch on its way through the proxy, event by event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace

from .script import Call, Cut, Delay, Drop, Duplicate, Gone, Hold, Mute, Script

GONE = (
    json.dumps(
        {
            "type": "ERROR",
            "object": {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": "Expired",
                "message": "too old resource version",
                "code": 410,
            },
        }
    ).encode()
    + b"\n"
)


class BrokenError(Exception):
    """The connection is to be broken here."""


@dataclass(slots=True, eq=False)
class Stream:
    """Passes lines on to `send`, as the script has it; `mute` may be set from outside at any time."""

    call: Call
    script: Script
    send: Callable[[bytes], Awaitable[None]]
    mute: bool = False
    _held: list[bytes] = field(default_factory=list)

    async def run(self, lines: AsyncIterator[bytes]) -> None:
        """Pass lines on to their end; a watch that was muted never ends. Raises BrokenError."""
        async for line in lines:
            if not self.mute and not await self._pass_on(line):
                return
        if self.mute:
            await asyncio.Event().wait()
        await self._send(b"")

    async def _pass_on(self, line: bytes) -> bool:
        """Pass on one line; returns whether the watch goes on."""
        match self.script.choose(replace(self.call, event=json.loads(line))):
            case Delay(seconds):
                await asyncio.sleep(seconds)
                await self._send(line)
            case Mute():
                self.mute = True
            case Gone():
                await self._send(GONE)
                return False
            case Cut(orderly):
                await self.send(line[: len(line) // 2])  # what is held back is lost with the connection
                if not orderly:
                    raise BrokenError
                return False
            case Drop():
                pass
            case Duplicate():
                await self._send(line + line)
            case Hold():
                self._held.append(line)
            case _:
                await self._send(line)
        return True

    async def _send(self, data: bytes) -> None:
        data += b"".join(self._held)
        self._held.clear()
        if data:
            await self.send(data)
