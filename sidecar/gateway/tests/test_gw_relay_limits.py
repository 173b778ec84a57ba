"""What a relay takes on: bodies as far as its memory goes, and streams while it has time for them."""

import contextlib
import json

import pytest
from aiohttp import ClientSession, UnixConnector, web

from headrace_gateway.relay.limits import LATE_SECONDS, Delay, Held
from headrace_gateway.relay.streams import Relay

PATH = "/v1/chat/completions"
MOST_BODY = 1000


@contextlib.asynccontextmanager
async def listening(path, handler):
    app = web.Application()
    app.add_routes([web.post("/{path:.*}", handler)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    try:
        yield
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def relaying(tmp_path, held, engine):
    """A session with a relay before `engine`."""
    relay = Relay(str(tmp_path / "engines"), lambda message: message, held)
    async with (
        relay.session,
        listening(tmp_path / "engines", engine),
        listening(tmp_path / "relay", relay.answer),
        ClientSession("http://relay", connector=UnixConnector(str(tmp_path / "relay"))) as session,
    ):
        yield session


async def echo(request):
    return web.Response(body=await request.read())


@pytest.mark.parametrize(("most", "asks"), [(MOST_BODY, True), (10, False)])
async def test_a_body_for_which_there_is_no_room_passes_as_it_is(tmp_path, most, asks):
    held = Held(most, MOST_BODY)
    body = json.dumps({"stream": True, "messages": [{"role": "user", "content": "hello"}]}).encode()
    async with relaying(tmp_path, held, echo) as session, session.post(PATH, data=body) as response:
        told = await response.read()
    assert (b"return_token_ids" in told) is asks
    assert told.endswith(body[1:])
    assert held.bytes == 0


async def test_what_no_memory_was_left_for_is_lost_with_its_engine_and_says_so(tmp_path):
    async def lost(request):
        request.transport.close()
        return web.Response()

    async with (
        relaying(tmp_path, Held(0, 1), lost) as session,
        session.post(PATH, data=b"{}") as response,
    ):
        assert response.status == 502
        error = (await response.json())["error"]
    assert error["code"] == "engine_lost"
    assert "memory" in error["message"]


async def test_a_body_of_unknown_size_counts_as_the_largest(tmp_path):
    held, seen = Held(MOST_BODY, MOST_BODY), []

    async def engine(request):
        seen.append(held.bytes)
        return await echo(request)

    async def parts():
        yield b'{"stream": '
        yield b"true}"

    async with relaying(tmp_path, held, engine) as session, session.post(PATH, data=parts()) as response:
        assert b"return_token_ids" in await response.read()
    assert seen == [MOST_BODY]


def test_one_late_moment_is_no_slowness():
    delay = Delay()
    delay.note(4 * LATE_SECONDS)
    assert not delay.is_late


def test_who_is_late_for_seconds_is_slow_and_recovers():
    delay = Delay()
    for _ in range(30):
        delay.note(2 * LATE_SECONDS)
    assert delay.is_late
    for _ in range(30):
        delay.note(0.0)
    assert not delay.is_late
