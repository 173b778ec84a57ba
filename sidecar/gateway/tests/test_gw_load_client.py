"""Load streams: lines parsed, streams followed, broken ones opened anew, engines dropped."""

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import get_type_hints

import pytest
from aiohttp import web
from gw_engine import Engine
from gw_reports import IDLE
from gw_rig import until
from hypothesis import given
from hypothesis import strategies as st

from e2e import ports
from headrace_engine.contracts import ContractError, GatewayConfig, LoadReport, encode
from headrace_gateway.balancers import BALANCERS
from headrace_gateway.catalog import Catalog, Service, ServiceKey
from headrace_gateway.pick.fleet import Fleet, OverloadedError
from headrace_gateway.pick.tokens import Prompt
from headrace_gateway.reports import load_client
from headrace_gateway.reports.load_stream import Sockets, StreamError, read

KEY = ServiceKey("llm", "chat")


def line(**changes):
    return json.dumps({**encode(IDLE), **changes}).encode()


def test_plain_and_unusual_lines_give_the_same_report():
    assert load_client.parse_report(line()) == IDLE
    assert load_client.parse_report(line(newKey=1)) == IDLE
    assert load_client.parse_report(line(stepSeconds=0)) == replace(IDLE, step_seconds=0.0)
    assert isinstance(load_client.parse_report(line(stepSeconds=0)).step_seconds, float)


@pytest.mark.parametrize("bad", [b"", b"[]", b"{}", line(running="1"), line(schema=2), line(running=None)])
def test_bad_lines_are_refused(bad):
    with pytest.raises((ContractError, ValueError)):
        load_client.parse_report(bad)


IMPOSSIBLE = [
    line(running=-1),
    line(arrivals=2**63),
    line(totalKvBlocks=10**16),
    line(prefillTokensPerSecond=-1.0),
    line(prefillTokensPerSecond=1e308),
    line(stepSeconds=5e-324),
    line(meanOutputTokens=1e-300),
    line(time=-1.0),
    line(boot="x" * 65),
    line(stepSeconds=0.5).replace(b"0.5", b"NaN"),
    line(stepSeconds=0.5).replace(b"0.5", b"1e999"),
    line(running=5).replace(b": 5", b": " + b"9" * 5000),
    line(newKey=1, waiting=-1),
    b'{"boot":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
]


@pytest.mark.parametrize("bad", IMPOSSIBLE)
def test_what_no_engine_can_be_is_not_believed(bad):
    with pytest.raises((ContractError, ValueError)):
        load_client.parse_report(bad)


PROMPT = Prompt(requests=2, text_bytes=999, counted_tokens=7, text=b"x" * 999)
COUNT = st.sampled_from([0, 1, 16, 10**15])
RATE = st.sampled_from([0.0, load_client.LEAST, 1.0, load_client.MOST])
KINDS = {int: COUNT, float: RATE, bool: st.booleans(), str: st.sampled_from(["a", "b"])}
REPORT = st.builds(LoadReport, **{name: KINDS[kind] for name, kind in get_type_hints(LoadReport).items()})


@given(st.lists(REPORT.map(lambda report: replace(report, schema=1)), min_size=1, max_size=6))
def test_whatever_engines_report_each_request_is_sent_somewhere_or_refused(reports):
    for balancer in BALANCERS:
        config = GatewayConfig("llm", "chat", (), "chat", balancer=balancer, max_queue_ms=5000)
        fleet = Fleet.from_config(config, Random(1))
        fleet.set_addresses(["a", "b"])
        for now, report in enumerate(reports):
            told = load_client.parse_report(json.dumps(encode(report)).encode())
            fleet.observe("ab"[now % 2], told, now / 10)
            with suppress(OverloadedError):
                assert fleet.choose(PROMPT, now / 10).address in {"a", "b"}


def catalog(*engines):
    if not engines:
        return Catalog()
    config = GatewayConfig("llm", "chat", (), "chat", sidecar_port=engines[0].sidecar_port)
    return Catalog.build([Service(config, tuple(engine.address for engine in engines))])


async def test_streams_are_followed_and_reopened():
    sidecar_port, port = ports.free(2)
    engines = [await Engine(f"127.0.9.{number}", port, sidecar_port).start() for number in (1, 2)]
    running = {}

    def observe(key, address, report):
        assert key == KEY
        running[address] = report.running

    try:
        async with load_client.client(observe, Random(1)) as follower:
            follower.set_catalog(catalog(*engines))
            engines[0].load(running=5)
            await until(lambda: running == {"127.0.9.1": 5, "127.0.9.2": 0}, "both engines report")
            await engines[0].stop()
            engines[0].load(running=9)
            await engines[0].start()
            await until(lambda: running["127.0.9.1"] == 9, "the broken stream is open again")
            follower.set_catalog(catalog(engines[1]))
            await asyncio.sleep(0)
            running.clear()
            await until(lambda: running.keys() == {"127.0.9.2"}, "the other engine is still followed")
    finally:
        for engine in engines:
            await engine.stop()


async def test_of_lines_that_come_at_once_the_last_counts_and_one_without_an_end_breaks_the_stream():
    (port,) = ports.free(1)
    opened, seen, over = [], [], asyncio.Event()

    async def stream(request):
        response = web.StreamResponse()
        await response.prepare(request)
        opened.append(request)
        await response.write(line(running=1)[:30])
        await response.write(line(running=1)[30:] + b"\n" + line(running=2) + b"\n" + b"x" * 70_000)
        await over.wait()
        return response

    app = web.Application()
    app.router.add_get("/load/stream", stream)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.9.3", port).start()
    try:
        async with load_client.client(lambda *told: seen.append(told[2].running), Random(1)) as follower:
            config = GatewayConfig("llm", "chat", (), "chat", sidecar_port=port)
            follower.set_catalog(Catalog.build([Service(config, ("127.0.9.3",))]))
            await until(lambda: len(opened) == 2, "the stream is opened again")
    finally:
        over.set()
        await runner.cleanup()
    assert seen[0] == 2


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def answered(*parts, hang=False):
    """What ends a stream that gets these bytes, and the lines it had."""
    lines = []

    done = asyncio.Event()

    async def answer(reader, writer):
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.001)
            if hang:
                await reader.read()
        with suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()
        done.set()

    async with await asyncio.start_server(answer, "127.0.9.4", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sockets = Sockets()
        with pytest.raises((StreamError, OSError)) as ended:
            await read("127.0.9.4", port, lines.append, lambda _: None, 0.3 if hang else 30.0, sockets)
        sockets.close()
        await done.wait()
    return str(ended.value), lines


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


async def test_a_line_may_come_in_pieces_of_chunks_and_of_packets():
    sent = HEAD + chunk(b"one\ntw") + chunk(b"o\nthree\n") + chunk(b"four\n")
    for size in (1, 7, len(sent)):
        _, lines = await answered(*(sent[at : at + size] for at in range(0, len(sent), size)))
        assert lines[-1] == b"four"
        assert set(lines) <= {b"one", b"two", b"three", b"four"}


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\none\n"], "the answer has status 503"),
        ([b"nonsense\r\n\r\n"], "it is not HTTP"),
        ([b"HTTP/1.1 200 OK\r\n" + b"x" * 40_000, b"x" * 40_000], "a head of more than 65536 bytes"),
        ([HEAD + chunk(b"x" * 40_000), chunk(b"x" * 40_000)], "a line of more than 65536 bytes"),
    ],
)
async def test_why_a_stream_is_given_up_is_said(parts, why):
    told, lines = await answered(*parts)
    assert why in told
    assert lines == []


@pytest.mark.parametrize(("end", "why"), [(b"", "the connection ended"), (b"0\r\n\r\n", "the answer ended")])
async def test_what_comes_with_the_end_still_counts(end, why):
    told, lines = await answered(HEAD + chunk(b"one\n") + end)
    assert why in told
    assert lines == [b"one"]


FLOODS = {
    "empty lines": b"\n" * 60_000,
    "lines": (line(running=3) + b"\n") * 100,
    "a byte in each chunk": b"1\r\nx\r\n" * 10_000,
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_is_given_up_and_takes_no_time_from_others(kind):
    data = FLOODS[kind] if kind == "a byte in each chunk" else chunk(FLOODS[kind])
    began = time.process_time()
    why, lines = await answered(HEAD, *[data] * 400)
    if kind != "a byte in each chunk":
        assert why == "more than 65536 bytes a second"
        assert len(lines) < 100
    else:
        assert why.startswith(("more than", "a line of more than"))
    assert time.process_time() - began < 2.0  # of it all, the server's part included


async def test_what_an_engine_sends_is_no_flood():
    lines = (line(running=n) + b"\n" for n in range(400))  # twenty seconds of them, at once
    why, seen = await answered(HEAD, *map(chunk, lines), b"0\r\n\r\n")
    assert why == "the answer ended"
    assert json.loads(seen[-1])["running"] == 399


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(status):
    elsewhere = (
        b"HTTP/1.1 %d Elsewhere\r\nlocation: http://127.0.9.4:1/\r\ncontent-length: 0\r\n\r\n" % status
    )
    why, lines = await answered(elsewhere)
    assert (why, lines) == (f"the answer has status {status}", [])


async def test_a_stream_that_breaks_at_once_is_opened_less_and_less_often(monkeypatch):
    pauses, enough = [], asyncio.Event()

    async def broken(*_):
        raise StreamError("more than 65536 bytes a second")

    class Even(Random):
        def uniform(self, low, high):
            return high

    async def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) > 6:
            enough.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(load_client, "read", broken)
    monkeypatch.setattr(load_client.asyncio, "sleep", sleep)
    async with load_client.client(lambda *_: None, Even(1)) as follower:
        config = GatewayConfig("llm", "chat", (), "chat", sidecar_port=1)
        follower.set_catalog(Catalog.build([Service(config, ("127.0.9.3",))]))
        await enough.wait()
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]


async def test_a_silent_stream_is_given_up():
    why, lines = await answered(HEAD + chunk(b"one\n"), hang=True)
    assert why == "nothing came for 0.3 s"
    assert lines == [b"one"]
