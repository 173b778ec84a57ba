"""One sidecar's `/load/stream`: an HTTP response without an end, one JSON line per change.

    socket ── data ──► httptools ── body ──► last whole line ──► on_line

The lines are handled where they arrive, with no task to wake: thousands come in a second.
"""

import asyncio
from collections.abc import Callable
from http.client import OK
from typing import NoReturn, cast

from httptools import HttpParserError, HttpResponseParser

from headrace_sidecar.gateway.catalog import authority

MAX_LINE_BYTES = 64 << 10  # of the response's head, too
_PATH = "/load/stream"


class StreamError(Exception):
    """Why a stream ended."""


async def read(
    address: str, port: int, on_line: Callable[[bytes], None], count: Callable[[int], None], patience: float
) -> NoReturn:
    """Hand over the last line whenever some have come; `count` is told how many.

    Ends by raising: StreamError, OSError, TimeoutError after `patience` seconds without a connection or a
    byte, or what `on_line` raises.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(patience):
        transport, stream = await loop.create_connection(
            lambda: _Stream(authority(address, port), on_line, count), address, port
        )
    try:
        while not stream.ended.done():
            silent = loop.time() - stream.heard
            if silent >= patience:
                raise TimeoutError(f"nothing came for {patience:g} s")
            await asyncio.wait([stream.ended], timeout=patience - silent)
        raise stream.ended.result()
    finally:
        transport.abort()


class _Stream(asyncio.Protocol):
    """The connection. `heard`: when something came last, on the loop's clock; `ended`: what ended it."""

    def __init__(self, host: str, on_line: Callable[[bytes], None], count: Callable[[int], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.heard = self._loop.time()
        self.ended: asyncio.Future[Exception] = self._loop.create_future()
        self._host = host
        self._on_line = on_line
        self._count = count
        self._parser = HttpResponseParser(self)
        self._head_bytes = 0
        self._in_body = False
        self._rest = b""  # of the body, since the last whole line

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        request = f"GET {_PATH} HTTP/1.1\r\nHost: {self._host}\r\n\r\n"
        cast("asyncio.Transport", transport).write(request.encode())

    def data_received(self, data: bytes) -> None:
        if self.ended.done():
            return
        self.heard = self._loop.time()
        try:
            self._parser.feed_data(data)
            if self._in_body:
                self._take_lines()
            else:
                self._check_head(len(data))
        except HttpParserError as error:
            self._end(StreamError(f"it is not HTTP: {error}"))
        except Exception as error:  # our caller is the event loop; `read` raises it to its own
            self._end(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(StreamError("the connection ended" + (f": {exc}" if exc else "")))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        status = self._parser.get_status_code()
        self._in_body = status == OK
        if not self._in_body:
            self._end(StreamError(f"the answer has status {status}"))

    def on_body(self, body: bytes) -> None:
        """Called by the parser, for each chunk."""
        self._rest += body

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._end(StreamError("the answer ended"))

    def _check_head(self, received: int) -> None:
        self._head_bytes += received
        if self._head_bytes > MAX_LINE_BYTES:
            raise StreamError(f"a head of more than {MAX_LINE_BYTES} bytes")

    def _take_lines(self) -> None:
        *lines, self._rest = self._rest.split(b"\n")
        if lines:
            self._count(len(lines))
            self._on_line(lines[-1])
        if len(self._rest) > MAX_LINE_BYTES:
            raise StreamError(f"a line of more than {MAX_LINE_BYTES} bytes")

    def _end(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_result(error)
