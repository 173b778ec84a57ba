"""Real Envoy, real picker: streams, and what clients see when the picker or engines come and go."""

import asyncio
import time

import pytest
from gw_rig import chat, posted, until

from headrace_gateway.xds import clusters

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(240)]

CHAT = "/v1/chat/completions"


async def stream(rig, session):
    """Read one streamed answer; whether it came to its end."""
    last = b""
    async with session.post(rig.url + CHAT, json=chat("chat", stream=True)) as response:
        assert response.status == 200
        async for line in response.content:
            last = line.strip() or last
    return last == b"data: [DONE]"


async def clients(rig, session, stop, statuses):
    """Post short requests until `stop` is set; statuses go to the list."""
    while not stop.is_set():
        statuses.append((await posted(session, rig.url + CHAT, chat("chat")))[0])


async def test_events_are_not_held_back(rig, session):
    """The engine sends an event when the client has the one before: held back, it would never come."""
    engine = await rig.engine(1, turns=asyncio.Semaphore(1), events=5)
    await rig.apply(session, {rig.config("chat"): [engine]})
    async with session.post(rig.url + CHAT, json=chat("chat", stream=True)) as response:
        for number in range(5):
            assert b'"n": %d}' % number in await asyncio.wait_for(response.content.readline(), 45)
            assert await response.content.readline() == b"\n"
            engine.turns.release()
        assert await response.content.readline() == b"data: [DONE]\n"


async def test_a_client_that_leaves_ends_the_engines_work(rig, session):
    engine = await rig.engine(1, gap=0.02, events=10_000)
    await rig.apply(session, {rig.config("chat"): [engine]})
    async with session.post(rig.url + CHAT, json=chat("chat", stream=True)) as response:
        await response.content.readline()
    await until(lambda: engine.aborted == 1, "the engine's request is aborted")


@pytest.mark.parametrize("end", ["killed", "hung", "terminated"])
async def test_without_the_picker_nothing_fails_and_streams_go_on(rig, session, end):
    over = asyncio.Event()
    engines = [await rig.engine(number, gap=0.05, over=over) for number in (1, 2, 3)]
    await rig.apply(session, {rig.config("chat"): engines})
    streams = [asyncio.create_task(stream(rig, session)) for _ in range(10)]
    await until(lambda: sum(len(engine.served) for engine in engines) == 10, "streams run")
    stop, statuses = asyncio.Event(), []
    load = [asyncio.create_task(clients(rig, session, stop, statuses)) for _ in range(4)]
    await until(lambda: len(statuses) > 20, "requests flow with the picker")
    if end == "killed":
        rig.kill_picker()
    elif end == "hung":
        rig.pause_picker()
    else:
        assert await rig.terminate_picker() == 0
    before = [len(engine.served) for engine in engines]
    seen = len(statuses)
    await until(lambda: len(statuses) > seen + 200, "requests flow without the picker")
    assert sum(len(engine.served) > count for engine, count in zip(engines, before, strict=True)) >= 2
    if end == "hung":
        rig.resume_picker()
    else:
        rig.start_picker()
    await until(lambda: rig.picks(session), "the picker chooses again")
    stop.set()
    await asyncio.gather(*load)
    assert set(statuses) == {200}
    over.set()
    assert all(await asyncio.gather(*streams))


async def test_engines_come_and_go_under_streams(rig, session):
    over = asyncio.Event()
    engines = [await rig.engine(number, gap=0.05, over=over) for number in range(1, 5)]
    config = rig.config("chat")
    await rig.apply(session, {config: engines})
    stop, statuses = asyncio.Event(), []
    streams = [asyncio.create_task(stream(rig, session)) for _ in range(20)]
    await until(lambda: sum(len(engine.served) for engine in engines) == 20, "streams run")
    load = [asyncio.create_task(clients(rig, session, stop, statuses)) for _ in range(2)]
    for change in range(8):
        await rig.apply(session, {config: engines[change % 3 : change % 3 + 2]})
    stop.set()
    await asyncio.gather(*load)
    assert set(statuses) == {200}
    over.set()
    assert all(await asyncio.gather(*streams))


async def test_a_dead_engine_is_passed_over(rig, session):
    engines = [await rig.engine(number) for number in (1, 2)]
    await rig.apply(session, {rig.config("chat", balancer="RoundRobin"): engines})
    await engines[0].stop()
    for _ in range(20):
        assert (await posted(session, rig.url + CHAT, chat("chat")))[0] == 200
    assert len(engines[1].served) == 20


async def test_idle_connections_end_before_the_engine_ends_them(rig, session):
    """vLLM's server closes what was idle for five seconds; a request that is on its way then is lost."""
    idle = clusters.HTTP.common_http_protocol_options.idle_timeout.seconds
    assert 1 < idle < 5
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("chat"): [engine]})
    timeouts = await rig.envoy_stat(session, "cluster.llm/chat.upstream_cx_idle_timeout")
    begun = time.monotonic()
    assert (await posted(session, rig.url + CHAT, chat("chat")))[0] == 200
    server = engine.runners[0].server
    await until(lambda: not server.connections, "Envoy closes its connection")
    assert time.monotonic() - begun >= idle
    assert await rig.envoy_stat(session, "cluster.llm/chat.upstream_cx_idle_timeout") > timeouts


async def test_a_hung_engine_gets_nothing_new_until_it_steps_again(rig, session):
    hung, other = await rig.engine(1), await rig.engine(2)
    await rig.apply(session, {rig.config("chat", balancer="RoundRobin"): [hung, other]})

    async def shares(count):
        before = len(hung.served), len(other.served)
        for _ in range(count):
            assert (await posted(session, rig.url + CHAT, chat("chat")))[0] == 200
        return len(hung.served) - before[0], len(other.served) - before[1]

    async def alone():
        return await shares(2) == (0, 2)

    async def both():
        return await shares(2) == (1, 1)

    await until(both, "both serve")
    hung.load(serving=False)
    await until(alone, "the picker passes it over")
    picked = "cluster.*ext_authz.ok"  # where the picker is late, Envoy chooses by itself
    before = await rig.envoy_stat(session, picked)
    to_hung, _ = await shares(10)
    assert to_hung <= 10 - (await rig.envoy_stat(session, picked) - before)
    hung.load(serving=True)
    await until(both, "it is let in again")


async def test_the_only_engine_serves_as_soon_as_it_is_back(rig, session):
    """Its failures had Envoy eject it, which must not outlast them when there is no other."""
    engine = await rig.engine(1)
    await rig.apply(session, {rig.config("chat"): [engine]})
    await engine.stop()
    for _ in range(5):
        assert (await posted(session, rig.url + CHAT, chat("chat")))[0] == 503
    await engine.start()
    assert (await posted(session, rig.url + CHAT, chat("chat")))[0] == 200


async def test_a_quiet_connection_for_configuration_lasts(rig, session):
    await rig.apply(session, {})
    connections = await rig.envoy_stat(session, "cluster.xds.upstream_cx_total")
    received = await rig.envoy_stat(session, "cluster.xds.upstream_cx_rx_bytes_total")

    async def answered():
        return await rig.envoy_stat(session, "cluster.xds.upstream_cx_rx_bytes_total") > received + 20 * 17

    await until(answered, "twenty pings of seventeen bytes are answered")
    assert await rig.envoy_stat(session, "cluster.xds.upstream_cx_total") == connections


async def test_a_restarted_picker_takes_no_route_away_while_it_lists(rig, session):
    engine = await rig.engine(1)
    config = rig.config("chat")
    await rig.apply(session, {config: [engine]})
    rig.kill_picker()
    rig.catalog_file.write_text("")  # it knows nothing yet
    rig.start_picker()
    await until(lambda: rig.picker_answers(session, "/healthz"), "the picker is up")
    await until(lambda: rig.envoys_connected(session), "envoy has asked it")
    assert not await rig.picker_answers(session, "/readyz")
    for _ in range(20):
        assert (await posted(session, rig.url + CHAT, chat("chat")))[0] == 200
    await rig.apply(session, {config: [engine]})
    assert await rig.picker_answers(session, "/readyz")


NO_ENGINE = {
    "message": "the service llm/chat has no ready engine",
    "type": "server_error",
    "param": None,
    "code": "no_ready_engine",
}


@pytest.mark.parametrize("picker", ["here", "away"])
async def test_however_the_only_engine_is_missing_the_answer_is_the_same(rig, session, picker):
    """Dead and still listed, unhealthy, or gone: one text, at once, with the picker and without."""
    engine = await rig.engine(1)
    service = rig.config("chat")
    await rig.apply(session, {service: [engine]})
    if picker == "away":
        rig.kill_picker()
    await engine.stop()
    started = time.monotonic()
    while time.monotonic() - started < 8:  # past the health check's and the ejection's times
        async with session.post(rig.url + CHAT, json=chat("chat")) as response:
            assert (response.status, response.headers["retry-after"]) == (503, "5")
            assert (await response.json())["error"] == NO_ENGINE
        await asyncio.sleep(0.05)
    if picker == "here":
        await rig.apply(session, {service: []})
        async with session.post(rig.url + CHAT, json=chat("chat")) as response:
            assert (response.status, response.headers["retry-after"]) == (503, "5")
            assert (await response.json())["error"] == NO_ENGINE


async def test_an_engine_that_starts_gets_requests_as_soon_as_it_serves_also_without_the_picker(rig, session):
    """Its address is known before it is ready; what is answered meanwhile comes from the other."""
    old, new = await rig.engine(1), await rig.engine(2, healthy=False)
    service = rig.config("chat")
    await rig.apply(session, {service: [old]})
    rig.write_catalog({service: [old.address]}, unready={service: [new.address]})
    await until(lambda: rig.known(session, "llm/chat", {old.address, new.address}), "Envoy knows both")
    rig.kill_picker()
    for _ in range(20):
        assert (await posted(session, rig.url + CHAT, chat("chat")))[0] == 200
    assert new.served == []
    await old.stop()
    new.healthy = True

    async def serves():
        return (await posted(session, rig.url + CHAT, chat("chat")))[0] == 200

    await until(serves, "the new engine serves")
    assert new.served
