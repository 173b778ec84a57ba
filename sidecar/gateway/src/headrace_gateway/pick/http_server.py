"""An HTTP/1.1 server for few clients that keep their connections and ask often: Envoys.

A request is answered as its last byte is parsed, without a task, unless its answer takes a while. That takes
a quarter of what a server for everybody takes. It does without pipelining, bodies that are handed on as they
come, and compression; what a client may send or leave open is bounded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import cast

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

log = logging.getLogger(__name__)

KEEP_ALIVE = 7200.0  # seconds; twice Envoy's, so that Envoy closes, and no connection ends as it is used
READ_SECONDS = 5.0  # for a whole request; Envoy has all of it before it asks, and waits for a part of that
LOOK_SECONDS = 2.0  # between two looks at who exceeds these
MOST_HEAD = 128 << 10  # bytes; Envoy lets through paths and headers of 60 KiB together
MOST_AT_ONCE = 256 << 10  # bytes that a transport hands over, or more


class Request:
    """A request whose body is there; header names are in lower case, and of one name the first counts."""

    __slots__ = ("_connection", "body", "headers", "path")

    def __init__(self, path: str, headers: Mapping[str, str], body: bytes, connection: "_Connection") -> None:
        self.path, self.headers, self.body = path, headers, body
        self._connection = connection

    @property
    def is_given_up(self) -> bool:
        """Whether the client waits no more."""
        return self._connection.is_lost


Answer = Callable[[Request], bytes | Awaitable[bytes]]
"""Gives a whole response, made by `response`, at once or later."""


def response(status: int, headers: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    """Make a whole response. Header values must not come from a client: they are sent as they are."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


FAILED = response(500)
NO_ROOM = response(503)
TOO_LARGE = response(413)
HEAD_TOO_LARGE = response(431)
MALFORMED = response(400)


class HttpServer:
    """Answers requests with bodies of at most `most_body` bytes.

    Of all bodies together at most `most_held` bytes are held: whose next piece would be more gets a 503,
    unless it is the only one.
    """

    def __init__(self, answer: Answer, most_body: int, most_held: int) -> None:
        self.answer = answer
        self.most_body = most_body
        self.most_held = most_held
        self.held = 0  # bytes
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._looking: asyncio.TimerHandle | None = None

    async def start(self, address: str, port: int) -> int:
        """Listen; returns the port, which is a free one for 0. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), address, port, backlog=1024)
        self._look()
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self, grace: float) -> None:
        """Listen no more, and end all connections; those with an answer under way within `grace` seconds."""
        if self._looking is not None:
            self._looking.cancel()
        if self._server is not None:
            self._server.close()
        end = asyncio.get_running_loop().time() + grace
        while under_way := [each.task for each in self.connections if each.task is not None]:
            left = end - asyncio.get_running_loop().time()
            if left <= 0:
                break
            await asyncio.wait(under_way, timeout=left)
        for connection in list(self.connections):
            connection.close()

    def _look(self) -> None:
        """End the connections of clients that are slow, or ask nothing for long."""
        loop = asyncio.get_running_loop()
        for connection in list(self.connections):
            connection.end_if_late(loop.time())
        self._looking = loop.call_later(LOOK_SECONDS, self._look)


class _Connection(asyncio.Protocol):
    """One client's requests, one after the other."""

    def __init__(self, server: HttpServer) -> None:
        self.is_lost = False
        self.task: asyncio.Task[None] | None = None  # that makes the answer under way
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._parser = HttpRequestParser(self)
        self._since = self._loop.time()  # when the request began, or the last one was answered
        self._is_amid = False  # whether a part of a request is there
        self._begin()

    def _begin(self) -> None:
        self._path = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._head_size = self._received = self._held = 0
        self._has_head = False
        self._refusal: bytes | None = None
        self._stays = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 asyncio's
        self.is_lost = True
        self._server.connections.discard(self)
        if self.task is None:
            self._release()

    def close(self) -> None:
        """End the connection, once what was written is sent."""
        self._transport.close()

    def end_if_late(self, now: float) -> None:
        """End the connection if its client sends a request too slowly, or has sent none for long."""
        allowed = READ_SECONDS if self._is_amid else KEEP_ALIVE
        if self.task is None and now - self._since > allowed:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None and not self._is_amid:
            return  # on its way out
        if not self._has_head:  # a part of it that is not whole yet the parser keeps to itself
            self._received += len(data)
            if self._received > MOST_HEAD + MOST_AT_ONCE:
                self._refuse(HEAD_TOO_LARGE)
                return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.close()  # the request is answered; what follows would be another protocol
        except HttpParserCallbackError:  # one of the methods below raised
            self._refuse(self._refusal or FAILED)
        except HttpParserError:
            self._refuse(MALFORMED)

    def pause_writing(self) -> None:
        """Hang up on who asks and asks, and takes no answers."""
        self._transport.abort()

    def on_message_begin(self) -> None:
        if self.task is not None:
            self._refusal = NO_ROOM
            raise ValueError("a second request before the answer to the first")
        self._is_amid = True
        self._since = self._loop.time()

    def on_url(self, url: bytes) -> None:
        self._path += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > MOST_HEAD:
            self._refusal = HEAD_TOO_LARGE
            raise ValueError(f"a head of more than {MOST_HEAD} bytes")

    def on_headers_complete(self) -> None:
        self._has_head = True
        size = int(self._headers.get("content-length", 0))  # the parser has checked it
        if size > self._server.most_body:
            self._refusal = TOO_LARGE
            raise ValueError("a body that is too large")

    def on_body(self, body: bytes) -> None:
        if self._refusal is not None:
            return
        server, size = self._server, self._held + len(body)
        if size > server.most_body:
            self._refusal = TOO_LARGE
            raise ValueError("a body that is too large")
        if server.held > self._held and server.held + len(body) > server.most_held:
            self._release()
            self._body.clear()
            self._refusal = NO_ROOM  # once the body is there: to hang up on who sends may cost it the answer
            return
        self._body.append(body)
        self._held = size
        server.held += len(body)

    def on_message_complete(self) -> None:
        self._is_amid = False
        self._stays = self._parser.should_keep_alive()
        if self._refusal is not None:
            self._reply(self._refusal)
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        path = self._path.partition(b"?")[0].decode("latin-1")
        answer: bytes | Awaitable[bytes] = FAILED
        try:
            answer = self._server.answer(Request(path, self._headers, body, self))
        except Exception:
            log.exception("no answer to a request for %s", path)
        if isinstance(answer, bytes):
            self._reply(answer)
        else:
            self.task = self._loop.create_task(self._reply_later(answer, path))

    async def _reply_later(self, answer: Awaitable[bytes], path: str) -> None:
        whole = FAILED
        try:
            whole = await answer
        except Exception:
            log.exception("no answer to a request for %s", path)
        finally:
            self.task = None
            self._reply(whole)

    def _reply(self, whole: bytes) -> None:
        self._release()
        if self._transport.is_closing():
            return
        self._transport.write(whole)
        if not self._stays:
            self._transport.close()
        self._since = self._loop.time()
        self._begin()

    def _refuse(self, whole: bytes) -> None:
        """Answer what can't be parsed to its end, and hang up."""
        if self.task is None:  # who still holds a body
            self._release()
        self._is_amid, self._refusal = False, whole
        if not self._transport.is_closing():
            self._transport.write(whole)
            self._transport.close()

    def _release(self) -> None:
        self._server.held -= self._held
        self._held = 0
