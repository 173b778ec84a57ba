"""One sidecar's `/load/stream`: an HTTP response without an end, one JSON line per change.

    socket ── every TICK seconds ──► httptools ── body ──► last whole line ──► on_line

Thousands of lines come in a second. To wake the event loop takes several times as long as a line, so the
streams' sockets are none of its own: they are looked at together, every few milliseconds.

A pod may send anything, and as much as it likes: a stream that brings more than an engine has to say is given
up, before reading it takes time from the others.
"""

import asyncio
import select
import socket
from collections.abc import Callable
from http.client import OK
from typing import NoReturn

from httptools import HttpParserError, HttpResponseParser

from headrace_gateway.catalog import authority

TICK = 0.005  # seconds; a step of an engine takes longer
MAX_LINE_BYTES = 64 << 10  # of the response's head, too
MAX_BYTES_A_SECOND = 64 << 10  # over a few seconds; a sidecar's twenty lines take 10 KB
_SAVED_SECONDS = 4.0  # of that rate, for what has piled up
_READ_BYTES = 64 << 10  # at once
_PATH = "/load/stream"


class StreamError(Exception):
    """A stream ended; the message says why."""


class Sockets:
    """Has those of its sockets read that have something, every TICK seconds. For one event loop."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[], None]] = {}  # by file descriptor
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: socket.socket, reader: Callable[[], None]) -> None:
        """Call `reader`, which must not raise, whenever `connection` has something or has ended."""
        self._readers[connection.fileno()] = reader
        self._epoll.register(connection, select.EPOLLIN)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)

    def remove(self, connection: socket.socket) -> None:
        """Stop reading from this socket."""
        self._epoll.unregister(connection)
        del self._readers[connection.fileno()]

    def _tick(self) -> None:
        for descriptor, _ in self._epoll.poll(0, len(self._readers) or 1):
            self._readers[descriptor]()
        running = asyncio.get_running_loop()
        self._timer = running.call_later(TICK, self._tick) if self._readers else None

    def close(self) -> None:
        """Stop reading from all sockets."""
        if self._timer is not None:
            self._timer.cancel()
        self._epoll.close()


async def read(  # noqa: PLR0917 a stream, and whom to tell
    address: str,
    port: int,
    on_line: Callable[[bytes], None],
    count: Callable[[int], None],
    longest_silence: float,
    sockets: Sockets,
) -> NoReturn:
    """Hand over the last line whenever some have come; `count` is told how many.

    Ends by raising: StreamError, OSError, TimeoutError after `longest_silence` seconds without a connection
    or a byte, or what `on_line` raises.
    """
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as connection:
        connection.setblocking(False)
        async with asyncio.timeout(longest_silence):
            await loop.sock_connect(connection, (address, port))
            request = f"GET {_PATH} HTTP/1.1\r\nHost: {authority(address, port)}\r\n\r\n"
            await loop.sock_sendall(connection, request.encode())
        stream = _Stream(connection, on_line, count)
        sockets.add(connection, stream.read)
        try:
            while not stream.ended.done():
                silent = loop.time() - stream.heard
                if silent >= longest_silence:
                    raise TimeoutError(f"nothing came for {longest_silence:g} s")
                await asyncio.wait([stream.ended], timeout=longest_silence - silent)
            raise stream.ended.result()
        finally:
            sockets.remove(connection)


class _Stream:
    """The response. `heard`: when something came last, on the loop's clock; `ended`: what ended it."""

    def __init__(
        self, connection: socket.socket, on_line: Callable[[bytes], None], count: Callable[[int], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.heard = self._loop.time()
        self.ended: asyncio.Future[Exception] = self._loop.create_future()
        self._connection = connection
        self._on_line = on_line
        self._count = count
        self._parser = HttpResponseParser(self)
        self._head_bytes = 0
        self._in_body = False
        self._rest = bytearray()  # of the body, since the last whole line
        self._allowance = _SAVED_SECONDS * MAX_BYTES_A_SECOND  # bytes, at `heard`

    def read(self) -> None:
        """Read what the socket has received."""
        if self.ended.done():
            return
        try:
            self._take(self._connection.recv(_READ_BYTES))
        except HttpParserError as error:
            self._end(StreamError(f"it is not HTTP: {error}"))
        except Exception as error:  # our caller reads other streams, too; `read` raises it to its own
            self._end(error)

    def _take(self, data: bytes) -> None:
        if not data:
            raise StreamError("the connection ended")
        self._spend(len(data))
        self._parser.feed_data(data)
        if self._in_body:
            self._take_lines()
        else:
            self._check_head(len(data))

    def _spend(self, received: int) -> None:
        now = self._loop.time()
        saved = self._allowance + (now - self.heard) * MAX_BYTES_A_SECOND
        self._allowance = min(saved, _SAVED_SECONDS * MAX_BYTES_A_SECOND) - received
        self.heard = now
        if self._allowance < 0.0:
            raise StreamError(f"more than {MAX_BYTES_A_SECOND} bytes a second")

    def on_headers_complete(self) -> None:
        """Take in a part of the response; the parser calls it."""
        status = self._parser.get_status_code()
        self._in_body = status == OK
        if not self._in_body:
            self._end(StreamError(f"the answer has status {status}"))

    def on_body(self, body: bytes) -> None:
        """Take a chunk of the body; the parser calls it."""
        self._rest += body

    def on_message_complete(self) -> None:
        """Take in a part of the response; the parser calls it."""
        self._end(StreamError("the answer ended"))

    def _check_head(self, received: int) -> None:
        self._head_bytes += received
        if self._head_bytes > MAX_LINE_BYTES:
            raise StreamError(f"a head of more than {MAX_LINE_BYTES} bytes")

    def _take_lines(self) -> None:
        whole = self._rest.rfind(b"\n")
        if whole >= 0:
            begin = self._rest.rfind(b"\n", 0, whole) + 1
            last = bytes(self._rest[begin:whole])
            self._count(self._rest.count(b"\n"))
            del self._rest[: whole + 1]
            if len(last) > MAX_LINE_BYTES:
                raise StreamError(f"a line of more than {MAX_LINE_BYTES} bytes")
            self._on_line(last)
        if len(self._rest) > MAX_LINE_BYTES:
            raise StreamError(f"a line of more than {MAX_LINE_BYTES} bytes")

    def _end(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_result(error)
