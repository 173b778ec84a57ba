"""HTTP/1.1 that costs next to nothing: the gateway's benchmark shares two cores with what it measures.

Just what loopback needs: one request at a time per connection, bodies with a content-length, no TLS.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

END = b"\r\n\r\n"
LENGTH = b"content-length:"

Respond = Callable[["ServerConnection", bytes, bytes], None]
"""Gets the connection, the request's head and its body; answers by `connection.answer`, now or later."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go: a host and a port."""

    host: str
    port: int


def chat_request(model: str, text: str, path: str = "") -> bytes:
    """Make a whole chat request, ready to be sent; `path` goes before that of the API."""
    body = {"model": model, "max_tokens": 64, "messages": [{"role": "user", "content": text}]}
    return _request(f"{path}/v1/chat/completions", body)


def completion_request(model: str, prompt: str, max_tokens: int) -> bytes:
    """Build the bytes of a request for a completion."""
    return _request("/v1/completions", {"model": model, "max_tokens": max_tokens, "prompt": prompt})


def _request(path: str, fields: dict[str, object]) -> bytes:
    body = json.dumps(fields)
    head = f"POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n{body}".encode()


def content_length(head: bytes) -> int:
    """Return the bytes of the body; raises ValueError for a message without a content-length."""
    at = head.lower().find(LENGTH)
    if at < 0:
        raise ValueError(f"no content-length in {head[:200]!r}")
    return int(head[at + len(LENGTH) :].split(b"\r\n", 1)[0])


class _Connection(asyncio.Protocol):
    """Puts one message together from what arrives."""

    def __init__(self) -> None:
        self._received = b""
        self._needed = 0  # bytes of the whole message; 0 while its head is incomplete
        self._head = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's does not say that it is one

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        if not self._needed:
            end = self._received.find(END)
            if end < 0:
                return
            self._head = end + len(END)
            self._needed = self._head + self.body_length(self._received[:end])
        if len(self._received) >= self._needed:
            message, self._received = self._received, self._received[self._needed :]
            head, body = message[: self._head], message[self._head : self._needed]
            self._needed = 0
            self.message(head, body)

    def body_length(self, head: bytes) -> int:
        """Return the bytes that follow this head."""
        return content_length(head)

    def message(self, head: bytes, body: bytes) -> None:
        """Take a whole message."""
        raise NotImplementedError


class ClientConnection(_Connection):
    """Sends one request after the other; `done` of the present one gets status (0: connection lost), body."""

    def __init__(self) -> None:
        super().__init__()
        self._done: Callable[[int, bytes], None] | None = None

    def send(self, request: bytes, done: Callable[[int, bytes], None]) -> None:
        """Send a whole request."""
        self._done = done
        if self.transport is None or self.transport.is_closing():
            self._finish(0, b"")
        else:
            self.transport.write(request)

    def message(self, head: bytes, body: bytes) -> None:
        """Take a whole answer."""
        self._finish(int(head[9:12]), body)

    def connection_lost(self, _error: Exception | None) -> None:
        """End the wait: no answer will come."""
        self._finish(0, b"")

    def close(self) -> None:
        """Close the connection; nothing may be under way."""
        self._done = None
        if self.transport is not None:
            self.transport.close()

    def _finish(self, status: int, body: bytes) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(status, body)


class ServerConnection(_Connection):
    """Hands each request to `respond`."""

    def __init__(self, respond: Respond) -> None:
        super().__init__()
        self._respond = respond

    def body_length(self, head: bytes) -> int:
        """Return the bytes that follow; a GET has no body."""
        return 0 if head.startswith(b"GET ") else content_length(head)

    def message(self, head: bytes, body: bytes) -> None:
        """Take a whole request."""
        self._respond(self, head, body)

    def answer(self, body: bytes) -> None:
        """Send a 200 with this JSON body."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(body), body)
            )


class Pool:
    """Open connections to one target; grows as needed."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._idle: list[ClientConnection] = []

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; returns status (0: connection lost) and body of the answer."""
        connection = self._idle.pop() if self._idle else await connect(self._target)
        reply: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        connection.send(
            request, lambda status, body: None if reply.done() else reply.set_result((status, body))
        )
        status, body = await reply
        if status:
            self._idle.append(connection)
        return status, body

    def close(self) -> None:
        """Close all idle connections of the pool."""
        for connection in self._idle:
            connection.close()


async def connect(target: Target) -> ClientConnection:
    """Open a new connection to the target."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(ClientConnection, target.host, target.port)
    return connection


async def listen(address: str, port: int, respond: Respond) -> asyncio.Server:
    """Serve requests on this address."""
    return await asyncio.get_running_loop().create_server(lambda: ServerConnection(respond), address, port)
