"""One bounded GET: how Headrace's parts ask a pod, which may answer anything.

Whoever may create pods decides what is at the other end. So the answer is bounded as it comes, head and body
together and in time; it is taken as it was sent (no redirect is followed, nothing is unpacked, no cookie is
kept); the connection ends with it; and an error says nothing that the other end wrote but the status.
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
from http.client import OK, HTTPException, HTTPResponse
from typing import cast

MOST_BYTES = 64 << 10  # of head and body together
BROKEN = (ConnectionError, HTTPException, ValueError, OverflowError)  # the last two: of its numbers
_READ_BYTES = 16 << 10  # at once


class FetchError(OSError):
    """There was no answer that can be used; the message names neither address nor content."""


async def fetch(
    address: str,
    port: int,
    path: str,
    *,
    most: int = MOST_BYTES,
    seconds: float,
    connect_seconds: float | None = None,
) -> bytes:
    """Fetch the body of `http://address:port/path`, at most `most` bytes with its head, within `seconds`.

    Raises FetchError when it cannot connect, or gets another status than 200, more bytes or no HTTP;
    TimeoutError when it has connected and the answer is not complete in time.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    try:
        async with asyncio.timeout(seconds if connect_seconds is None else connect_seconds):
            reader, writer = await asyncio.open_connection(address, port, limit=_READ_BYTES)
    except TimeoutError as error:
        raise FetchError("it cannot be connected to in time") from error
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else "unreachable"
        raise FetchError(f"it cannot be connected to: {why}") from error
    try:
        host = f"[{address}]" if ":" in address else address
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout_at(deadline):
            return _body(await _read(reader, most))
    except FetchError:
        raise
    except BROKEN as error:
        raise FetchError("its answer is broken off, or no HTTP") from error
    finally:
        writer.transport.abort()  # what it still sends is not waited for


async def _read(reader: asyncio.StreamReader, most: int) -> bytes:
    """Read all that comes until the other end closes."""
    answer = bytearray()
    while data := await reader.read(_READ_BYTES):
        answer += data
        if len(answer) > most:
            raise FetchError(f"its answer is longer than {most} bytes")
    return bytes(answer)


def _body(answer: bytes) -> bytes:
    response = HTTPResponse(cast("socket.socket", _Received(answer)))
    response.begin()
    if response.status != OK:
        raise FetchError(f"its answer has status {response.status}")
    return response.read()


class _Received:
    """What HTTPResponse needs of a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)
