"""The fault proxy does what its faults say, counts each, and otherwise changes nothing."""

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web

from e2e.faults import (
    Cut,
    Delay,
    Drop,
    Duplicate,
    Gone,
    HalfOpen,
    Hang,
    Hold,
    Mute,
    Proxy,
    Reset,
    Rule,
    Script,
    Status,
)
from e2e.faults.script import Call

EVENTS = [{"type": "ADDED", "object": {"n": n}} for n in range(4)]
BROKEN = (aiohttp.ClientError, aiohttp.ClientPayloadError)


class Upstream:
    """Answers every request with what it was asked, and every watch with EVENTS."""

    def __init__(self):
        self.asked = []

    async def handle(self, request):
        self.asked.append(request.method)
        if "watch" not in request.query:
            return web.json_response({"path": request.path, "body": await request.text()})
        response = web.StreamResponse()
        await response.prepare(request)
        for event in EVENTS:
            await response.write(json.dumps(event).encode() + b"\n")
        return response


@pytest.fixture
async def upstream():
    return Upstream()


@pytest.fixture
async def proxy(upstream):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", upstream.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    with Proxy(f"http://127.0.0.1:{runner.addresses[0][1]}") as running:
        yield running
    await runner.cleanup()


@pytest.fixture
async def client(proxy):
    async with aiohttp.ClientSession(proxy.url, timeout=aiohttp.ClientTimeout(total=20)) as session:
        yield session


async def watch(client):
    """Numbers of the events that a watch brings; an error's code."""
    async with client.get("/x", params={"watch": "true"}) as response:
        lines = (await response.read()).splitlines()
    events = [json.loads(line)["object"] for line in lines]
    return [event.get("n", event.get("code")) for event in events]


async def get(client, method="GET"):
    async with client.request(method, "/x", data=b"hello") as response:
        return response.status, await response.read()


async def test_without_faults_nothing_is_changed(client, proxy):
    status, body = await get(client, "PATCH")
    assert (status, json.loads(body)) == (200, {"path": "/x", "body": "hello"})
    assert await watch(client) == [0, 1, 2, 3]
    assert [call.write for call in proxy.calls()] == [True, False]
    assert not proxy.script.counts


@pytest.mark.parametrize(
    ("fault", "events"),
    [
        (Drop(), [0, 2, 3]),
        (Duplicate(), [0, 1, 1, 2, 3]),
        (Hold(), [0, 2, 1, 3]),
        (Gone(), [0, 410]),
        (Delay(0.01), [0, 1, 2, 3]),
    ],
)
async def test_faults_of_events(client, proxy, fault, events):
    second = Rule(fault, lambda call: call.event is not None and call.event["object"]["n"] == 1)
    with proxy.rule(second):
        assert await watch(client) == events
    assert proxy.script.counts == {type(fault).__name__: 1}
    assert await watch(client) == [0, 1, 2, 3]


async def test_a_mute_watch_stays_open(client, proxy):
    with proxy.rule(Rule(Mute(), lambda call: call.event is not None and call.event["object"]["n"] == 2)):
        async with client.get("/x", params={"watch": "true"}) as response:
            assert [await response.content.readline() for _ in range(2)][1] == (
                json.dumps(EVENTS[1]).encode() + b"\n"
            )
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(response.content.readline(), 0.2)


async def test_a_watch_is_cut_in_the_middle_of_an_event(client, proxy):
    where = Rule(Cut(), lambda call: call.event is not None)
    with proxy.rule(where), pytest.raises(BROKEN):
        await watch(client)
    with proxy.rule(Rule(Cut(orderly=True), where.where)), pytest.raises(json.JSONDecodeError):
        await watch(client)
    assert proxy.script.counts == {"Cut": 2}


async def test_errors_are_answered_without_asking_the_server(client, proxy, upstream):
    with proxy.rule(Rule(Status(429, retry_after=7))):
        async with client.get("/x") as response:
            assert response.status == 429
            assert response.headers["Retry-After"] == "7"
    assert upstream.asked == []


@pytest.mark.parametrize(("fault", "asked"), [(Reset(), []), (Reset(after=True), ["PATCH"])])
async def test_a_reset_comes_before_or_after_it_took_effect(client, proxy, upstream, fault, asked):
    with proxy.rule(Rule(fault)), pytest.raises(BROKEN):
        await get(client, "PATCH")
    assert upstream.asked == asked


@pytest.mark.parametrize(("fault", "asked"), [(Hang(), []), (HalfOpen(), ["PATCH"])])
async def test_no_answer_comes_although_the_connection_stays(client, proxy, upstream, fault, asked):
    with proxy.rule(Rule(fault)), pytest.raises(TimeoutError):
        await asyncio.wait_for(get(client, "PATCH"), 0.3)
    assert upstream.asked == asked


@pytest.mark.parametrize("kind", Proxy.OUTAGES)
async def test_an_outage_ends(client, proxy, kind):
    with proxy.outage(kind):
        try:
            status, _ = await asyncio.wait_for(get(client), 0.5)
        except (aiohttp.ClientError, TimeoutError):
            status = None
        assert status in {None, 500, 429}
    assert (await get(client))[0] == 200


def test_the_same_seed_brings_the_same_faults():
    def picked(seed):
        script = Script(seed, [Rule(Reset(), share=0.3, times=5)])
        chosen = [script.choose(Call("GET", "/", {})) for _ in range(100)]
        assert script.counts["Reset"] == 5
        return [number for number, fault in enumerate(chosen) if fault]

    assert picked(1) == picked(1) != picked(2)
