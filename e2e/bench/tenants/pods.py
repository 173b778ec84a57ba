"""Pods as they answer: an engine and its sidecar as they should be, or what somebody puts there instead."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from headrace_engine.contracts import AppliedPolicy, EngineInfo, EngineStatus, LoadReport, dumps

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]

ENGINE_PORT, SIDECAR_PORT = 8000, 9400
_ENDED = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError)
SECRET = "s3cr3t-of-the-pod"
_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"transfer-encoding: chunked\r\n\r\n"
_IDLE = LoadReport("b1", 1.0, True, 0, 0, 0, 0, 0, 400, 400, 16, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class Pod:
    """Listens at `address`; what is in `answers` by path stands for what an engine or a sidecar says."""

    address: str
    policy: str = ""  # hash of the document in force
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)  # paths, of both ports
    servers: list[asyncio.Server] = field(default_factory=list)

    async def start(self) -> Pod:
        """Listen on the engine's and the sidecar's port."""
        for port in (ENGINE_PORT, SIDECAR_PORT):
            self.servers.append(await asyncio.start_server(self._serve, self.address, port))
        return self

    def stop(self) -> None:
        """Close both ports again."""
        for server in self.servers:
            server.close()

    def served(self) -> int:
        """Count the requests of clients that came here."""
        return sum(path.startswith("/v1/") for path in self.asked)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(*_ENDED):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode()
            self.asked.append(path)
            await self.answers.get(path, self._usual(path))(writer)
            await writer.drain()
        writer.close()

    def _usual(self, path: str) -> Answer:
        if path == "/load/stream":
            return stream(dumps(_IDLE).encode())
        if path == "/status":
            applied = AppliedPolicy("FCFS", self.policy)
            return plain(dumps(EngineStatus("0.1.0", ("FCFS",), 1, EngineInfo("Idle"), applied)).encode())
        return plain(b'{"choices":[]}')


def plain(body: bytes, head: bytes = _OK) -> Answer:
    """Answer with this body."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(head + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    return answer


def stream(line: bytes, pause: float = 0.2) -> Answer:
    """Send this line again and again."""
    return endless(_CHUNKED, b"%x\r\n%b\n\r\n" % (len(line) + 1, line), pause)


def endless(start: bytes, more: bytes, pause: float = 0.0) -> Answer:
    """Send a body that has no end."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(more)
            await writer.drain()
            await asyncio.sleep(pause)

    return answer


def redirect(elsewhere: str) -> Answer:
    """Return a 302 to the same path there."""
    head = f"HTTP/1.1 302 {SECRET}\r\nlocation: http://{elsewhere}:{SIDECAR_PORT}/{SECRET}\r\n".encode()
    return plain(SECRET.encode(), head)


def hostile(elsewhere: str) -> dict[str, Answer]:
    """Make answers that no sidecar gives."""
    many = SECRET.encode() * 4096
    packed = gzip.compress(b"0" * (64 << 20))
    report = json.loads(dumps(_IDLE))

    def lying(**numbers: object) -> Answer:
        return stream(json.dumps({**report, **numbers}).encode())

    return {
        "a redirect": redirect(elsewhere),
        "a flood": endless(_CHUNKED, b"%x\r\n%b\r\n" % (len(many), many)),
        "a flood of headers": endless(_OK, b"x: " + many[:8000] + b"\r\n"),
        "a flood of hints": endless(b"", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 512),
        "a flood of answers": endless(b"", (_OK + b"content-length: 2\r\n\r\n{}") * 512),
        "a slow drip": endless(_CHUNKED, b"1\r\nx\r\n", 0.05),
        "a compressed flood": plain(packed, _OK + b"content-encoding: gzip\r\n"),
        "garbage": plain(SECRET.encode()),
        "no HTTP": endless(SECRET.encode() + b"\r\n\r\n", b"x", 1.0),
        "deep JSON": plain(b"[" * 60_000),
        "numbers below 0": lying(running=-1, prefillTokensPerSecond=-1.0),
        "numbers beyond reason": lying(arrivals=2**62, stepSeconds=1e300),
        "no number": stream(
            json.dumps(report).encode().replace(b'"stepSeconds": 0.0', b'"stepSeconds": NaN')
        ),
        "a flood of reports": stream(b"\n" * 30_000 + dumps(_IDLE).encode(), 0.0),
    }
