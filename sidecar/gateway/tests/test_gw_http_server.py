"""The server that Envoys ask: what it answers, what it refuses, and whom it hangs up on."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_gateway.pick import http_server
from headrace_gateway.pick.http_server import HttpServer, response

HEAD = b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nX-Route: llm/chat\r\nx-route: other\r\n"
POST = HEAD + b"Content-Length: 5\r\n\r\nhello"
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Trial:
    """A server that tells what it was asked, and a client of it."""

    def __init__(self, most_body=1000, most_held=1500):
        self.asked = []
        self.later = {}
        self.server = HttpServer(self.answer, most_body, most_held)

    def answer(self, request):
        self.asked.append(request)
        if request.path == "/later":
            return self.wait(request)
        return response(200, {"x-path": request.path}, request.body)

    async def wait(self, request):
        event = self.later.setdefault(request.body, asyncio.Event())
        await event.wait()
        return response(200, {}, request.body)

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def __aenter__(self):
        self.port = await self.server.start("127.0.0.1", 0)
        return self

    async def __aexit__(self, *failure):
        await self.server.close(grace=1.0)


async def read_answer(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ") for line in lines if line)
    return int(status.split()[1]), headers, await reader.readexactly(int(headers["content-length"]))


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  what it waits for is the kernel's
            await asyncio.sleep(0.001)


async def ended(reader):
    """The server has hung up, whichever way the kernel puts it."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def test_requests_of_one_connection_are_answered_one_after_the_other():
    async with Trial() as trial:
        reader, writer = await trial.connect()
        for _ in range(3):
            writer.write(POST)
            assert await read_answer(reader) == (200, {"content-length": "5", "x-path": "/a"}, b"hello")
        assert [each.headers["x-route"] for each in trial.asked] == ["llm/chat"] * 3
        assert trial.server.held == 0
        writer.close()


@given(st.lists(st.integers(1, len(POST) - 1), max_size=6))
def test_it_does_not_matter_how_a_request_is_cut(cuts):
    async def ask():
        async with Trial() as trial:
            reader, writer = await trial.connect()
            places = sorted({0, *cuts, len(POST)})
            for start, end in pairwise(places):
                writer.write(POST[start:end])
                await writer.drain()
                await asyncio.sleep(0)
            assert (await read_answer(reader))[::2] == (200, b"hello")
            writer.close()

    asyncio.run(ask())


async def test_a_body_in_chunks_is_put_together():
    async with Trial() as trial:
        reader, writer = await trial.connect()
        writer.write(
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
        )
        assert (await read_answer(reader))[2] == b"abc"
        writer.close()


async def test_who_wants_to_leave_is_answered_and_let_go():
    async with Trial() as trial:
        reader, writer = await trial.connect()
        writer.write(GET.replace(b"Host", b"Connection: close\r\nHost"))
        assert (await read_answer(reader))[0] == 200
        assert await ended(reader)
        writer.close()


async def test_another_protocol_is_not_changed_to():
    async with Trial() as trial:
        reader, writer = await trial.connect()
        writer.write(GET.replace(b"Host", b"Connection: Upgrade\r\nUpgrade: websocket\r\nHost") + b"\x81\x00")
        assert (await read_answer(reader))[0] == 200
        assert await ended(reader)
        writer.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"x" * 2000, 413),
        (b"GET / HTTP/1.1\r\nHost: x\r\nx-long: " + b"x" * http_server.MOST_HEAD + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * http_server.MOST_HEAD + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
    ],
)
async def test_what_is_malformed_or_too_large_is_refused(sent, status):
    async with Trial() as trial:
        reader, writer = await trial.connect()
        writer.write(sent)
        assert (await read_answer(reader))[0] == status
        assert await ended(reader)
        assert not trial.asked
        assert trial.server.held == 0
        writer.close()


async def test_without_room_for_its_body_a_request_is_refused_and_its_connection_stays():
    async with Trial() as trial:
        slow_reader, slow = await trial.connect()
        slow.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 999)
        await until(lambda: trial.server.held == 999)
        reader, writer = await trial.connect()
        large = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 600\r\n\r\n" + b"x" * 600
        writer.write(large)
        assert (await read_answer(reader))[0] == 503
        slow.write(b"x")
        assert (await read_answer(slow_reader))[0] == 200
        writer.write(large)
        assert (await read_answer(reader))[0] == 200
        slow.close()
        writer.close()


async def test_what_is_only_announced_takes_no_room():
    async with Trial() as trial:
        announced = [await trial.connect() for _ in range(10)]
        for _, slow in announced:
            slow.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        await until(lambda: len(trial.server.connections) == 10)
        reader, writer = await trial.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000)
        assert (await read_answer(reader))[0] == 200
        for each in (writer, *(slow for _, slow in announced)):
            each.close()


async def test_who_has_no_body_needs_no_room():
    async with Trial(most_held=3) as trial:
        _, slow = await trial.connect()
        slow.write(POST[:-2])
        await until(lambda: trial.server.held == 3)
        reader, writer = await trial.connect()
        writer.write(GET)
        assert (await read_answer(reader))[0] == 200
        slow.close()
        writer.close()


async def test_a_head_without_an_end_is_refused():
    async with Trial() as trial:
        reader, writer = await trial.connect()
        writer.write(b"GET / HTTP/1.1\r\nx-long: ")
        for _ in range(100):
            writer.write(b"x" * 10_000)
        assert (await read_answer(reader))[0] == 431
        writer.close()


async def test_who_takes_no_answers_is_hung_up_on():
    async with Trial(most_body=200_000, most_held=400_000) as trial:
        _, writer = await trial.connect()
        request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000

        async def ask_and_ask():
            for _ in range(1000):
                writer.write(request)
                await writer.drain()

        with pytest.raises(ConnectionError):
            await ask_and_ask()
        await until(lambda: not trial.server.connections)
        assert trial.server.held == 0


async def test_room_is_given_back_by_who_leaves_amid_a_request():
    async with Trial() as trial:
        _, writer = await trial.connect()
        writer.write(POST[:-2])
        await until(lambda: trial.server.held == 3)
        writer.transport.abort()
        await until(lambda: trial.server.held == 0)
        assert not trial.asked


async def test_an_answer_that_takes_a_while_holds_up_nobody_else():
    async with Trial() as trial:
        reader, writer = await trial.connect()
        writer.write(POST.replace(b"/a", b"/later"))
        await until(lambda: trial.later)
        other_reader, other = await trial.connect()
        other.write(GET)
        assert (await read_answer(other_reader))[0] == 200
        trial.later[b"hello"].set()
        assert (await read_answer(reader))[2] == b"hello"
        writer.write(GET)
        assert (await read_answer(reader))[0] == 200
        writer.close()
        other.close()


async def test_who_leaves_before_an_answer_has_given_up():
    async with Trial() as trial:
        _, writer = await trial.connect()
        writer.write(POST.replace(b"/a", b"/later"))
        await until(lambda: trial.later)
        [request] = trial.asked
        assert not request.is_given_up
        writer.transport.abort()
        await until(lambda: request.is_given_up)
        trial.later[b"hello"].set()
        await until(lambda: trial.server.held == 0)


async def test_a_second_request_before_the_first_is_answered_is_refused():
    async with Trial() as trial:
        reader, writer = await trial.connect()
        writer.write(POST.replace(b"/a", b"/later"))
        await until(lambda: trial.later)
        writer.write(GET)
        assert (await read_answer(reader))[0] == 503  # which refuses nobody
        assert trial.server.held == 5
        trial.later[b"hello"].set()
        await until(lambda: trial.server.held == 0)
        assert await ended(reader)
        writer.close()


async def test_slow_and_silent_clients_are_hung_up_on(monkeypatch):
    monkeypatch.setattr(http_server, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(http_server, "READ_SECONDS", 0.02)
    async with Trial() as trial:
        reader, writer = await trial.connect()
        writer.write(GET)
        assert (await read_answer(reader))[0] == 200
        slow_reader, slow = await trial.connect()
        slow.write(POST[:20])
        assert await ended(slow_reader)
        writer.write(GET)  # nothing is wrong with who asks nothing for a while
        assert (await read_answer(reader))[0] == 200
        monkeypatch.setattr(http_server, "KEEP_ALIVE", 0.02)
        assert await ended(reader)
        writer.close()
        slow.close()


async def test_what_fails_is_answered_with_a_500(caplog):
    async def fails():
        raise OSError("broken")

    def answer(request):
        if request.path == "/later":
            return fails()
        raise ValueError("broken")

    async with Trial() as trial:
        trial.server.answer = answer
        reader, writer = await trial.connect()
        for path in (b"/", b"/later", b"/"):
            writer.write(GET.replace(b"/ ", path + b" "))
            assert (await read_answer(reader))[0] == 500
        assert caplog.text.count("no answer to a request") == 3
        writer.close()


async def test_the_end_waits_for_answers_under_way():
    async with Trial() as trial:
        reader, writer = await trial.connect()
        idle_reader, idle = await trial.connect()
        writer.write(POST.replace(b"/a", b"/later"))
        await until(lambda: trial.later)
        closing = asyncio.create_task(trial.server.close(grace=10.0))
        await asyncio.sleep(0)
        trial.later[b"hello"].set()
        await closing
        assert (await read_answer(reader))[2] == b"hello"
        assert await ended(idle_reader)
        writer.close()
        idle.close()
