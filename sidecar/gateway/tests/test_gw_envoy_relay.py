"""Streams through a real Envoy, picker and relay: an engine that is lost midway costs its clients nothing.

The engines are fakes that stream as vLLM does; with real ones see `test_e2e_bench_continuation`.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace

import aiohttp
import pytest
from gw_reports import IDLE
from gw_rig import Rig, chat, posted, until

from e2e.bench.continuation.signer import Signer
from headrace_engine.contracts.resume_arguments import RESUME_IDS, read_resumption
from headrace_gateway.pick.rebalance import WAITING_SECONDS
from headrace_gateway.relay.moves import TICK

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(300)]
TOKENS = 30
WHOLE = "".join(f"<{100 + number}>" for number in range(TOKENS))
PATH = "/v1/chat/completions"
FULL = replace(IDLE, waiting=1)
REPORTING = 'headrace_gateway_engines{namespace="llm",service="chat",state="reporting"}'

GATEWAY = Signer()


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "private-key.pem"
    GATEWAY.write(path)
    return path


@pytest.fixture(scope="module")
def rig(tmp_path_factory, key):
    made = Rig(tmp_path_factory.mktemp("relay"))
    made.start()
    made.start_relay(key)
    yield made
    made.stop()


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as made:
        yield made


@pytest.fixture
async def engines(request, rig, session, key):
    """Two engines; a parameter is what their sidecars report at first."""
    if rig.relay is None:
        rig.start_relay(key)
    if report := getattr(request, "param", None):
        await until(lambda: hears_nobody(rig, session), "the picker has no reports of the test before")
    found = [await rig.engine(number, gap=0.005, report=report or IDLE) for number in (1, 2)]
    config = rig.config("chat", resume=True, balancer="RoundRobin")
    await rig.apply(session, {config: found})
    await until(lambda: passes_relay(rig, session, found), "Envoy finds the relay, and it both engines")
    for engine in found:
        engine.served.clear()
    yield found
    for engine in found:
        await engine.stop()


async def hears_nobody(rig, session):
    return not await rig.metric(session, REPORTING)


def ask(text="hello", **more):
    return chat("chat", text, **{"stream": True, "max_tokens": TOKENS, **more})


async def passes_relay(rig, session, engines):
    """Whether streams go through the relay, which asks for token ids, and each engine has served one.

    Envoy's threads know of an engine up to a second later than its administration page does.
    """
    async with session.post(rig.url + PATH, json=ask()) as response:
        return b'"token_ids"' in await response.read() and all(engine.served for engine in engines)


async def read(session, rig, body, headers=None):
    """The whole text of a stream, and its raw bytes."""
    async with session.post(rig.url + PATH, json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        data = await response.read()
    return text_of(data), data


def text_of(data):
    events = [json.loads(each[6:]) for each in data.split(b"\n\n") if each.startswith(b"data: {")]
    assert not any("error" in each for each in events), events
    return "".join(choice["delta"].get("content", "") for each in events for choice in each["choices"])


async def test_a_stream_is_what_the_engine_sent_but_for_the_ids_that_nobody_asked_for(rig, session, engines):
    text, data = await read(session, rig, ask())
    assert text == WHOLE
    assert data.count(b'"token_ids":null') == TOKENS
    assert data.count(b'"prompt_token_ids":null') == 1
    assert data.endswith(b"data: [DONE]\n\n")
    [served] = [request for engine in engines for request in engine.served]
    assert not [name for name in served["headers"] if name.lower().startswith("x-headrace")]


async def test_the_access_log_has_a_line_of_each_part_and_none_of_what_the_relay_asks(rig, session, engines):
    log = rig.folder / "envoy.log"
    begun = log.stat().st_size
    await read(session, rig, ask(max_tokens=300))  # while the relay asks

    def told():
        new = log.read_bytes()[begun:].splitlines()
        return [json.loads(line) for line in new if line.startswith(b"{")]

    await until(lambda: {line["from"] for line in told()} == {"client", "relay"}, "both lines are written")
    assert {line["path"] for line in told()} <= {PATH, "/v1/models"}


@pytest.mark.parametrize("at", [0, 1, TOKENS // 2, TOKENS - 1])
async def test_a_client_does_not_see_that_its_engine_was_lost(rig, session, engines, at):
    lost, other = engines
    while not lost.served:  # the first may be the other's
        text, data = await read(session, rig, ask(f"lose {at} {lost.address}"))
        assert text == WHOLE
        assert len(set(re.findall(rb'"created":(\d+)', data))) == 1
        assert data.count(b"[DONE]") == 1
    assert other.served


async def test_the_engine_that_goes_on_gets_what_the_gateway_signed(rig, session, engines):
    first = engines[0].address
    seen, began = [], time.time()
    for engine in engines:
        engine.heard = seen.append
    while len(engines[0].served) == 0:
        assert (await read(session, rig, ask(f"lose 7 {first}")))[0] == WHOLE
    [arguments] = [body["vllm_xargs"] for body in seen if RESUME_IDS in body["vllm_xargs"]]
    told = read_resumption(GATEWAY.key("llm/chat"), arguments)
    assert told.token_ids == tuple(range(100, 107))
    assert began - 0.001 <= told.arrival <= told.first_token <= told.last_token <= time.time()


async def test_a_request_that_ends_two_engines_meets_no_third(rig, session, engines):
    async with session.post(rig.url + PATH, json=ask("lose 5 any")) as response:
        data = await response.read()
    *_, last, done, _ = data.split(b"\n\n")
    error = json.loads(last.removeprefix(b"data: "))["error"]
    assert error["code"] == "engine_lost"
    assert "2 engines were lost with it" in error["message"]
    assert done == b"data: [DONE]"
    assert sum(len(engine.served) for engine in engines) == 2


async def test_engines_that_are_lost_before_they_answer_are_told_as_an_error(rig, session, engines):
    status, answer = await posted(session, rig.url + PATH, ask(drop=True))
    assert (status, answer["error"]["code"]) == (502, "engine_lost")
    assert [len(engine.served) for engine in engines] == [1, 1]


async def test_an_engine_that_may_have_another_model_does_not_go_on(rig, session, engines):
    addresses = [engine.address for engine in engines]
    config = rig.config("chat", resume=True, balancer="RoundRobin")
    rig.write_catalog({config: addresses}, revisions={addresses[1]: "another"})
    await until(lambda: is_told_of_another(rig, session), "Envoy has the revisions")
    told = b""
    while not engines[0].served:  # the first may be the other's
        async with session.post(rig.url + PATH, json=ask(f"lose 7 {addresses[0]}")) as response:
            told = await response.read()
    assert told.count(b'"content":"<') == 7
    assert b'"engine_lost"' in told
    await until(lambda: engines[1].aborted, "the other engine was told that it is not wanted", 5)


@pytest.mark.parametrize("drain", ["Move", "Wait"])
async def test_streams_leave_an_engine_that_is_being_stopped_if_asked_to(rig, session, engines, drain):
    addresses = [engine.address for engine in engines]
    config = rig.config("chat", resume=True, balancer="RoundRobin", drain=drain)
    rig.write_catalog({config: addresses})
    stopped, other = engines
    streams = []
    while len(streams) < 8 or not stopped.served:
        streams.append(asyncio.create_task(read(session, rig, ask(max_tokens=1000))))
        await until(lambda: sum(len(each.served) for each in engines) == len(streams), "all are under way")
    under_way = len(stopped.served)
    moved = await rig.relay_metric(session, "headrace_relay_streams_moved_total")
    rig.write_catalog({config: [other.address]}, terminating=[stopped.address])
    whole = "".join(f"<{100 + number}>" for number in range(1000))
    assert [text for text, _ in await asyncio.gather(*streams)] == [whole] * len(streams)
    expected = under_way if drain == "Move" else 0
    assert stopped.aborted == expected
    assert await rig.relay_metric(session, "headrace_relay_streams_moved_total") == moved + expected


@pytest.mark.parametrize("rebalance", [True, False])
async def test_streams_that_wait_go_on_where_there_is_room_if_asked_to(rig, session, engines, rebalance):
    addresses = [engine.address for engine in engines]
    full, other = engines
    full.turns = asyncio.Semaphore(0)  # its streams wait
    full.load(running=2, waiting=2, waiting_prefill_tokens=100_000)
    config = rig.config("chat", resume=True, balancer="RoundRobin", rebalance=rebalance)
    rig.write_catalog({config: addresses})
    streams = []
    while len(streams) < 8 or not full.served:
        streams.append(asyncio.create_task(read(session, rig, ask())))
        await until(lambda: sum(len(each.served) for each in engines) == len(streams), "all are under way")
    waiting = len(full.served)
    if rebalance:
        await until(lambda: full.aborted == waiting, "all that wait have moved")
    else:
        await asyncio.sleep(3 * TICK + WAITING_SECONDS)
        assert full.aborted == 0
        for _ in range(waiting):
            full.turns.release()
    assert [text for text, _ in await asyncio.gather(*streams)] == [WHOLE] * len(streams)
    assert len(other.served) == len(streams) - waiting + (waiting if rebalance else 0)


@pytest.mark.parametrize("engines", [IDLE, FULL], indirect=True)
async def test_a_stream_that_its_engine_hands_back_goes_on_once_there_is_room(rig, session, engines):
    log = rig.folder / "envoy.log"
    begun, moved = log.stat().st_size, await rig.relay_metric(session, "headrace_relay_streams_moved_total")
    stream = asyncio.create_task(read(session, rig, ask("preempt 7 any")))
    if engines[0].report == FULL:
        await until(lambda: any(engine.served for engine in engines), "the stream is under way")
        await asyncio.sleep(1)
        assert not stream.done()
        for engine in engines:
            engine.load(waiting=0)
    text, data = await stream
    assert text == WHOLE
    assert b"abort" not in data
    assert await rig.relay_metric(session, "headrace_relay_streams_moved_total") == moved + 1
    assert [engine.aborted for engine in engines] == [0, 0]
    assert sum(len(engine.served) for engine in engines) == 2
    assert b'"status":409' not in log.read_bytes()[begun:]


@pytest.mark.parametrize("engines", [FULL], indirect=True)
async def test_a_client_that_leaves_while_its_stream_waits_for_room_ends_it(rig, session, engines):
    async with session.post(rig.url + PATH, json=ask("preempt 7 any")) as response:
        while b"<106>" not in await response.content.readline():
            pass
        await asyncio.sleep(0.5)
    for engine in engines:
        engine.load(waiting=0)
    await asyncio.sleep(1)
    assert sum(len(engine.served) for engine in engines) == 1


async def test_a_stream_stays_where_it_is_while_no_other_engine_takes_it(rig, session, engines):
    stopped, other = engines
    config = rig.config("chat", resume=True, balancer="RoundRobin", drain="Move")
    await other.stop()
    stream = asyncio.create_task(read(session, rig, ask(max_tokens=1000)))
    await until(lambda: stopped.served, "the stream is under way")
    rig.write_catalog({config: [other.address]}, terminating=[stopped.address])
    whole = "".join(f"<{100 + number}>" for number in range(1000))
    assert (await stream)[0] == whole
    assert stopped.aborted == 0


async def is_told_of_another(rig, session):
    """Whether Envoy's configuration has the revision `another`."""
    dump = f"http://127.0.0.1:{rig.admin_port}/config_dump?include_eds"
    async with session.get(dump) as response:
        return '"another"' in await response.text()


async def test_a_client_that_leaves_ends_its_request(rig, session, engines):
    async with session.post(rig.url + PATH, json=ask(max_tokens=10_000)) as response:
        await response.content.readline()
    await until(lambda: sum(engine.aborted for engine in engines) == 1, "the engine has noticed", 5)


async def test_without_a_relay_streams_go_to_engines(rig, session, engines, key, slow_to_learn):
    for _ in range(4):
        rig.kill_relay()
        assert await asyncio.gather(*(answered(rig, session) for _ in range(20))) == [True] * 20
        rig.start_relay(key)  # and dies as soon as Envoy has found it
        await until(lambda: passes_relay(rig, session, engines), "streams go through the relay again")


async def answered(rig, session):
    async with session.post(rig.url + PATH, json=ask()) as response:
        data = await response.read()
        return response.status == 200 and data.endswith(b"[DONE]\n\n")


@pytest.fixture
def slow_to_learn(rig, engines):
    """Keep Envoy's main thread, which tells its workers whom to leave out, from nearly all time."""
    main_thread = rig.envoy.pid
    os.sched_setscheduler(main_thread, os.SCHED_IDLE, os.sched_param(0))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 2)]
    yield
    for each in busy:
        each.kill()
        each.wait()
    os.sched_setscheduler(main_thread, os.SCHED_OTHER, os.sched_param(0))


async def test_what_is_no_stream_does_not_meet_the_relay(rig, session, engines):
    status, answer = await posted(session, rig.url + PATH, chat("chat"))
    assert status == 200
    assert answer["engine"] in {engine.address for engine in engines}


async def test_streams_that_could_not_go_on_are_handed_through(rig, session, engines):
    async with session.post(rig.url + PATH, json=ask(n=2)) as response:
        data = await response.read()
    assert data.count(b'"engine"') == TOKENS
    assert data.endswith(b"data: [DONE]\n\n")


async def test_refusals_come_as_they_were(rig, session, engines):
    status, answer = await posted(session, rig.url + PATH, ask() | {"kv_transfer_params": {}})
    assert (status, answer["error"]["code"]) == (400, "invalid_body")
    forged = ask() | {"vllm_xargs": {"headrace_resume_ids": [1]}}
    spoofed = {"x-headrace-resumed": "1", "x-headrace-exclude": "a"}
    status, answer = await posted(session, rig.url + PATH, forged, spoofed)
    assert (status, answer["error"]["param"]) == (400, "vllm_xargs")
    assert "is not for clients" in answer["error"]["message"]


async def test_without_engines_a_stream_is_refused_as_any_request(rig, session, engines):
    for engine in engines:
        await engine.stop()
    await until(lambda: _refused(rig, session), "Envoy knows that they are gone")


async def _refused(rig, session):
    async with session.post(rig.url + PATH, json=ask()) as response:
        if response.status != 503:
            return False
        error = (await response.json())["error"]
        assert error["code"] == "no_ready_engine", error
        assert "llm/chat" in error["message"]
        assert response.headers["retry-after"] == "5"
        return True


async def test_many_streams_outlive_an_engine_at_once(rig, session, engines):
    async def one(number):
        await asyncio.sleep(0.01 * (number % 7))
        return (await read(session, rig, ask(f"lose {number % TOKENS} {engines[0].address}")))[0]

    async def counts():
        names = ("resumed", "failed")
        return [await rig.relay_metric(session, f"headrace_relay_streams_{name}_total") for name in names]

    resumed, failed = await counts()
    assert await asyncio.gather(*map(one, range(40))) == [WHOLE] * 40
    after = await counts()
    assert after[0] > resumed
    assert after[1] == failed
