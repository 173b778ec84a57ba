"""What the picker answers when Envoy asks."""

import asyncio
from random import Random

import aiohttp
import pytest
from gw_reports import IDLE

from headrace_engine.contracts import GatewayConfig
from headrace_gateway import metrics, names
from headrace_gateway.balancers.endpoint import Work
from headrace_gateway.catalog import Catalog, Service
from headrace_gateway.headers import DESTINATION_HEADER, ROUTE_HEADER
from headrace_gateway.pick import counting, pick_server, prompt_reader
from headrace_gateway.pick.picker import Picker
from headrace_gateway.pick.prompt_reader import PromptReader
from headrace_gateway.pick.rebalance import TERMINATING, read_surpluses
from headrace_gateway.pick.tokens import read_prompt

LIMIT = 10_000
BODY = b'{"messages": [{"role": "user", "content": "hi"}]}'


@pytest.fixture
def picker():
    made = Picker(lambda: 0.0, Random(1))
    busy = GatewayConfig("llm", "busy", (), "busy", max_queue_ms=1000)
    services = [Service(busy, ("10.0.0.3",)), Service(GatewayConfig("llm", "empty", (), "empty"))]
    made.set_catalog(
        Catalog.build([Service(GatewayConfig("llm", "chat", (), "chat"), ("10.0.0.1",)), *services])
    )
    for fleet in made.fleets.values():
        for address in fleet.endpoints:
            fleet.observe(address, IDLE, 0.0)
    return made


@pytest.fixture
async def reader(monkeypatch):
    monkeypatch.setattr(prompt_reader, "READ_SECONDS", 60.0)  # on a busy machine
    async with PromptReader() as made:
        yield made


@pytest.fixture
async def ask(picker, reader):
    """Asks for a service's engine, or another path; status, headers and body."""
    states, leads = ["current"], [True]
    server = pick_server.server(picker, reader, lambda: states[0], lambda: leads[0], LIMIT)
    url = f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}"

    async def post(service, body=BODY, path=names.PICK_PATH + "/v1/chat/completions"):
        headers = {ROUTE_HEADER: service} if service else {}
        async with session.post(url + path, data=body, headers=headers) as response:
            return response.status, response.headers, await response.text()

    post.states, post.leads, post.server = states, leads, server
    async with aiohttp.ClientSession() as session:
        yield post
    await server.close(grace=1.0)


async def test_to_count_tokens_is_no_work(ask, picker):
    status, headers, _ = await ask("llm/chat", path=f"{names.PICK_PATH}/llm/chat{names.COUNT_PATH}")
    assert (status, headers[DESTINATION_HEADER]) == (200, "10.0.0.1:8000")
    assert picker.fleets["llm/chat"].endpoints["10.0.0.1"].booked_requests == 0


async def test_who_does_not_lead_chooses_too(ask, picker):
    ask.leads[0] = False
    assert (await ask("llm/chat"))[0] == 200
    assert picker.fleets["llm/chat"].endpoints["10.0.0.1"].booked_requests == 1
    assert (await ask("", path=names.LEADER_PATH))[0] == 503
    ask.leads[0] = True
    assert (await ask("", path=names.LEADER_PATH))[0] == 200


async def test_relays_are_told_what_engines_shall_hand_over(ask, picker):
    moving = GatewayConfig("llm", "moving", (), "moving", resume=True, drain="Move")
    revisions = dict.fromkeys(("10.0.0.1", "10.0.0.2"), "one")
    service = Service(moving, ("10.0.0.2",), terminating=("10.0.0.1",), revisions=revisions)
    for services, expected in (([service], {"10.0.0.1:8000": TERMINATING}), ([], {})):
        picker.set_catalog(Catalog.build(services))
        status, _, text = await ask("", path=names.SURPLUSES_PATH)
        assert (status, read_surpluses(text)) == (200, expected)


async def test_what_is_chosen_is_told(ask, picker):
    told = []
    picker.share = lambda service, placement: told.append((service, placement.address))
    await ask("llm/chat")
    assert told == [("llm/chat", "10.0.0.1")]


async def test_the_engine_is_in_a_header(ask):
    status, headers, _ = await ask("llm/chat")
    assert (status, headers[DESTINATION_HEADER]) == (200, "10.0.0.1:8000")


async def test_what_is_not_known_here_is_left_to_envoy(ask):
    for service in ("llm/unknown", ""):
        status, headers, _ = await ask(service)
        assert status == 200
        assert DESTINATION_HEADER not in headers


async def test_refusals(ask, picker):
    status, headers, text = await ask("llm/chat", b"{}")
    assert (status, headers["content-type"]) == (400, "application/json")
    assert '"invalid_body"' in text
    status, headers, _ = await ask("llm/empty")
    assert (status, DESTINATION_HEADER in headers) == (
        200,
        False,
    )  # Envoy knows of engines that are not ready
    picker.fleets["llm/busy"].endpoints["10.0.0.3"].book(Work(tokens=1e6), 0.0)
    status, headers, text = await ask("llm/busy")
    assert (status, headers["retry-after"]) == (429, "15")
    assert '"overloaded"' in text


async def test_nothing_is_counted_of_a_service_that_is_gone(ask):
    """Whoever may make services makes new names without end."""

    def counted():
        found = [each for kind in (metrics.PICKS, metrics.REFUSALS) for each in kind.collect()]
        return {sample.labels["service"] for each in found for sample in each.samples}

    for body in (BODY, b"{}"):
        await ask("llm/chat", body)
    assert "chat" in counted()
    counting.forget(["llm/chat", "llm/never-asked"])
    assert "chat" not in counted()
    await ask("llm/chat")
    assert "chat" in counted()


async def test_a_body_over_the_limit_is_refused(ask):
    assert (await ask("llm/chat", b" " * (LIMIT + 2000)))[0] == 413


async def test_a_body_that_takes_long_is_read_elsewhere_and_answered_alike(ask, picker, reader, monkeypatch):
    message = b'{"role":"user"}'
    long = b'{"messages": [' + b",".join([message] * 510) + b"]}"
    assert prompt_reader.takes_long(long)
    assert (await ask("llm/chat", long))[1][DESTINATION_HEADER] == "10.0.0.1:8000"
    assert picker.fleets["llm/chat"].endpoints["10.0.0.1"].booked_requests == 1
    status, _, text = await ask("llm/chat", long[:-2])
    assert (status, '"invalid_body"' in text) == (400, True)
    monkeypatch.setattr(prompt_reader, "MOST_WAITING", 0)
    status, headers, text = await ask("llm/chat", long)
    assert (status, headers["retry-after"]) == (429, "1")
    assert "other long requests" in text
    assert DESTINATION_HEADER not in (await ask("llm/unknown", long))[1]


async def test_more_bodies_than_there_is_room_for_go_on_without_the_picker(ask):
    ask.server.most_held = 5000
    reading = asyncio.Event()

    async def slowly():
        yield b" " * 4999
        await reading.wait()
        yield BODY

    first = asyncio.create_task(ask("llm/chat", slowly()))
    while (await ask("llm/chat"))[0] != 503:  # until the first body is on its way
        pass
    reading.set()
    assert (await first)[0] == 200
    assert (await ask("llm/chat"))[0] == 200


async def test_a_pick_that_envoy_waits_for_no_more_is_not_booked(ask, picker, reader, monkeypatch):
    reading, go_on, read_it = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def read(service, body):
        reading.set()
        await go_on.wait()
        read_it.set()
        return read_prompt(BODY)

    monkeypatch.setattr(reader, "read", read)
    monkeypatch.setattr(pick_server, "takes_long", lambda body: True)
    asked = asyncio.create_task(ask("llm/chat"))
    await reading.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (await ask("", path=names.HEALTH_PATH))[0] == 200  # by now the server has seen who left
    go_on.set()
    await read_it.wait()
    assert (await ask("", path=names.HEALTH_PATH))[0] == 200
    (endpoint,) = picker.fleets["llm/chat"].endpoints.values()
    assert not endpoint.booked_requests
    assert (await ask("llm/chat"))[0] == 200
    assert endpoint.booked_requests == 1


async def test_a_picker_that_fails_leaves_the_choice_to_envoy(ask, picker, monkeypatch, caplog):
    monkeypatch.setattr(picker.fleets["llm/chat"], "balancer", None)
    assert (await ask("llm/chat"))[0] == 500
    assert "no answer to a request" in caplog.text


@pytest.mark.parametrize(
    ("state", "status", "degraded"), [("current", 200, False), ("stale", 200, True), ("away", 503, False)]
)
async def test_envoys_health_check(ask, state, status, degraded):
    ask.states[0] = state
    told, headers, _ = await ask("", path=names.HEALTH_PATH)
    assert (told, "x-envoy-degraded" in headers) == (status, degraded)
