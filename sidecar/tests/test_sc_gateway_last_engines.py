"""The last engines of a service stay in it as long as they answer, whatever Kubernetes says of their pods."""

import asyncio

import pytest
from sc_gateway_objects import endpoint_slice

from headrace_engine.contracts import GatewayConfig
from headrace_sidecar.gateway import last_engines
from headrace_sidecar.gateway.catalog import Catalog, Service, ServiceKey
from headrace_sidecar.gateway.kubernetes_source import join
from headrace_sidecar.gateway.last_engines import LastEngines

KEY = ServiceKey("llm", "chat")
SERVICE = Service(GatewayConfig("llm", "chat", ("chat",), "chat"))


class Gateway:
    """What was published last, and engines that answer unless they are named in `silent`."""

    def __init__(self):
        self.silent, self.asked, self.published = set(), [], []
        self.last = LastEngines(self.published.append, self.answers)

    async def answers(self, address, port):
        self.asked.append(address)
        return address not in self.silent

    def take(self, ready=(), unready=()):
        self.last.take(Catalog.of([SERVICE.with_addresses(ready, unready)]))
        return self.addresses

    @property
    def addresses(self):
        return self.published[-1].services[KEY].addresses


@pytest.fixture
def gateway(monkeypatch):
    monkeypatch.setattr(last_engines, "ASK_EVERY", 0.0)
    return Gateway()


async def checked(gateway):
    """Let the engines that are kept be asked a few times."""
    task = asyncio.create_task(gateway.last.check())
    for _ in range(50):  # turns of the loop; asking takes a few
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return gateway.addresses


async def test_an_only_engine_whose_sidecar_restarts_stays(gateway):
    assert gateway.take(ready=["a"]) == ("a",)
    assert gateway.take(unready=["a"]) == ("a",)
    assert await checked(gateway) == ("a",)
    assert gateway.take(ready=["a"]) == ("a",)


async def test_all_engines_that_kubernetes_lost_sight_of_stay(gateway):
    gateway.take(ready=["a", "b"])
    assert gateway.take(ready=["b"], unready=["a"]) == ("b",)
    assert gateway.take(unready=["a", "b"]) == ("a", "b")


async def test_a_dead_engine_goes_and_is_not_asked_again(gateway):
    gateway.take(ready=["a"])
    gateway.silent = {"a"}
    gateway.take(unready=["a"])
    assert await checked(gateway) == ()
    gateway.silent = set()
    asked = len(gateway.asked)
    assert gateway.take(unready=["a"]) == ()
    await checked(gateway)
    assert len(gateway.asked) == asked
    assert gateway.take(ready=["a"]) == ("a",)
    assert gateway.take(unready=["a"]) == ("a",)


async def test_of_several_only_those_that_answer_stay(gateway):
    gateway.take(ready=["a", "b"])
    gateway.silent = {"b"}
    gateway.take(unready=["a", "b"])
    assert await checked(gateway) == ("a",)


async def test_an_engine_that_was_never_ready_is_not_used(gateway):
    assert gateway.take(unready=["a"]) == ()
    gateway.take(ready=["b"], unready=["a"])
    assert gateway.take(unready=["a", "b"]) == ("b",)


async def test_an_engine_that_has_gone_is_forgotten(gateway):
    gateway.take(ready=["a"])
    assert gateway.take() == ()
    assert gateway.take(unready=["a"]) == ()


async def test_a_ready_engine_is_believed_and_nobody_asked(gateway):
    gateway.take(ready=["a"], unready=["b"])
    assert await checked(gateway) == ("a",)
    assert gateway.asked == []


def test_pods_that_end_are_not_among_the_unready():
    conditions = [
        ("10.0.0.1", {"ready": True}),
        ("10.0.0.2", {"ready": False, "terminating": False}),
        ("10.0.0.3", {"ready": False, "terminating": True}),
    ]
    service = join([SERVICE], [endpoint_slice(*conditions)]).services[KEY]
    assert (service.addresses, service.unready) == (("10.0.0.1",), ("10.0.0.2",))


async def test_engines_are_asked_for_their_health(monkeypatch, aiohttp_engine):
    gone = asyncio.Event()
    monkeypatch.setattr(last_engines, "ASK_EVERY", 0.0)
    address, port, dead = aiohttp_engine
    service = Service(GatewayConfig("llm", "chat", ("chat",), "chat", port=port))
    published = []

    async def source(publish):
        publish(Catalog.of([service.with_addresses([address, dead])]))
        publish(Catalog.of([service.with_addresses([], [address, dead])]))
        await asyncio.Event().wait()

    def publish(catalog):
        published.append(catalog.services[KEY].addresses)
        if published[-1] == (address,):
            gone.set()

    running = asyncio.create_task(last_engines.keep(source, publish))
    await gone.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert published[1] == (address, dead)


async def test_a_busy_engine_that_takes_the_connection_stays(monkeypatch):
    published, waits, asked = [], asyncio.Event(), []

    async def silent(reader, writer):
        asked.append(await reader.read())  # until the other side hangs up
        writer.close()
        await writer.wait_closed()
        if len(asked) == 2:
            waits.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    monkeypatch.setattr(last_engines, "ASK_EVERY", 0.0)
    monkeypatch.setattr(last_engines, "ANSWER_SECONDS", 0.01)
    port = server.sockets[0].getsockname()[1]
    service = Service(GatewayConfig("llm", "chat", ("chat",), "chat", port=port))

    async def source(publish):
        publish(Catalog.of([service.with_addresses(["127.0.0.1"])]))
        publish(Catalog.of([service.with_addresses([], ["127.0.0.1"])]))
        await asyncio.Event().wait()

    running = asyncio.create_task(
        last_engines.keep(source, lambda catalog: published.append(catalog.services[KEY].addresses))
    )
    await waits.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    server.close()
    assert () not in published


@pytest.fixture
async def aiohttp_engine():
    """Address and port of an engine, and an address where none is."""
    from aiohttp import web

    async def health(_request):
        return web.Response()

    app = web.Application()
    app.add_routes([web.get("/health", health)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield "127.0.0.1", runner.addresses[0][1], "127.0.0.2"
    await runner.cleanup()
