"""A GET of a pod that answers whatever it likes: bounded in bytes and time, taken as it is, never quoted."""

import asyncio
import contextlib
import gzip
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.contracts import fetch as module
from headrace_engine.contracts.fetch import MOST_BYTES, FetchError, fetch

HOST = "127.0.9.5"
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
SECRET = b"sEcReT"


class Pod:
    """A server that answers each connection with `parts`, one after the other, for ever if `again`."""

    def __init__(self, *parts, again=b"", pause=0.0, close=True):
        self.parts, self.again, self.pause, self.close = parts, again, pause, close
        self.requests, self.sent = [], 0
        self.done = asyncio.Event()

    async def _answer(self, reader, writer):
        with contextlib.suppress(ConnectionError):
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            for part in self.parts:
                await self._send(writer, part)
            while self.again:
                await self._send(writer, self.again)
            if not self.close:
                await reader.read()
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()
        self.done.set()

    async def _send(self, writer, data):
        writer.write(data)
        await writer.drain()
        self.sent += len(data)
        await asyncio.sleep(self.pause)

    async def asked(self, seconds=5.0, **bounds):
        async with await asyncio.start_server(self._answer, HOST, 0) as server:
            port = server.sockets[0].getsockname()[1]
            try:
                return await fetch(HOST, port, "/status", seconds=seconds, **bounds)
            finally:
                await self.done.wait()


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"content-length: 5\r\n\r\nhello",
        OK + b"\r\nhello",
        CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"\r\nhello",
    ],
)
async def test_a_plain_answer(answer):
    pod = Pod(answer)
    assert await pod.asked() == b"hello"
    assert pod.requests[0].startswith(b"GET /status HTTP/1.1\r\nHost: 127.0.9.5:")


FLOODS = {
    "body": (CHUNKED, b"%x\r\n%b\r\n" % (1 << 16, b"x" * (1 << 16))),
    "body of known length": (OK + b"content-length: 99999999999\r\n\r\n", b"x" * (1 << 16)),
    "headers": (OK, b"x-a: b\r\n" * 4096),
    "one header": (OK + b"x-a: ", b"b" * (1 << 16)),
    "early hints": (b"", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 1024),
    "answers": (b"", (OK + b"content-length: 2\r\n\r\n{}") * 1024),
    "chunk extensions": (CHUNKED + b"5;", b"e" * (1 << 16)),
    "trailers": (CHUNKED + b"0\r\n", b"x-a: b\r\n" * 4096),
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_is_cut_off(kind):
    start, more = FLOODS[kind]
    pod = Pod(start, again=more)
    with pytest.raises(FetchError, match=f"longer than {MOST_BYTES} bytes"):
        await pod.asked()
    assert pod.sent < 32 << 20  # what the kernel's buffers took


async def test_nothing_is_unpacked():
    packed = gzip.compress(b"0" * (50 << 20))
    assert len(packed) < MOST_BYTES
    assert await Pod(OK + b"content-encoding: gzip\r\n\r\n" + packed).asked() == packed


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 204, 404, 500])
async def test_no_redirect_is_followed_and_only_the_status_is_told(status):
    elsewhere = b"location: http://127.0.9.5/%b\r\nx-%b: 1\r\n\r\n" % (SECRET, SECRET)
    pod = Pod(b"HTTP/1.1 %d %b\r\n" % (status, SECRET), elsewhere, SECRET)
    with pytest.raises(FetchError, match=f"^its answer has status {status}$"):
        await pod.asked()
    assert len(pod.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        SECRET,
        b"HTTP/1.1 2x0 " + SECRET + b"\r\n\r\n",
        OK + b"content-length: 50\r\n\r\n" + SECRET,
        OK + b"x: y\r\n" * 101 + b"\r\n",
        CHUNKED + SECRET + b"\r\n",
        CHUNKED + b"%x\r\n" % 10**30 + SECRET,
        OK + b"content-length: %d\r\n\r\n" % 10**30 + SECRET,
    ],
)
async def test_what_is_no_answer_is_not_quoted(answer):
    with pytest.raises(FetchError, match=r"^its answer is broken off, or no HTTP$"):
        await Pod(answer).asked()


@given(st.binary(max_size=200), st.sampled_from([b"", OK, CHUNKED, OK + b"content-length: "]))
def test_any_answer_gives_a_body_or_an_error_of_ours(answer, start):
    with contextlib.suppress(FetchError, *module.BROKEN):
        assert isinstance(module._body(start + answer), bytes)


@pytest.mark.parametrize("slow", [{"close": False}, {"again": b"x", "pause": 0.02}])
async def test_a_slow_answer_ends_with_the_time_for_it(slow):
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await Pod(OK + b"\r\n", **slow).asked(seconds=0.2)
    assert time.monotonic() - began < 5.0


async def test_nobody_there():
    with pytest.raises(FetchError, match=r"^it cannot be connected to: Connection refused$"):
        await fetch(HOST, 9, "/status", seconds=5.0)
