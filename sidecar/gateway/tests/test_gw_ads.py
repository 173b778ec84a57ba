"""ADS on a real gRPC connection: what is sent, when, and what a refusal leads to."""

import asyncio
import math

import grpc
import pytest
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2

from headrace_engine.contracts import GatewayConfig
from headrace_gateway import metrics
from headrace_gateway.catalog import Catalog, Service
from headrace_gateway.xds import ads
from headrace_gateway.xds.acknowledged import MESSAGE_LENGTH
from headrace_gateway.xds.ads import DiscoveryServer, Snapshots
from headrace_gateway.xds.generation_cache import GenerationCache
from headrace_gateway.xds.snapshot import CLUSTERS, ENDPOINTS, ROUTES, TYPES, build_snapshot


def snapshot(*services):
    """For services given as (name, addresses)."""
    return build_snapshot(
        Catalog.build([Service(GatewayConfig("llm", n, (), n), addresses) for n, addresses in services]),
        GenerationCache(),
    )


class Client:
    """One Envoy's side of the stream."""

    def __init__(self, call):
        self.call = call

    async def ask(self, kind, *names, nonce="", error="", version=""):
        request = discovery_pb2.DiscoveryRequest(
            type_url=kind, resource_names=names, response_nonce=nonce, version_info=version
        )
        if error:
            request.error_detail.message = error
        await self.call.write(request)

    async def next(self):
        async with asyncio.timeout(30):
            response = await self.call.read()
        return response.type_url, response

    async def nothing(self):
        """True if the server has nothing to say; it is asked for a type that it answers at once."""
        await self.ask(ROUTES, "marker")
        kind, _response = await self.next()
        return kind == ROUTES


@pytest.fixture(params=[math.inf])
async def discovery(request):
    snapshots = Snapshots()
    server = grpc.aio.server()
    service = DiscoveryServer(snapshots, stale_after=request.param)
    ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()
        yield snapshots, Client(call)
        call.cancel()
    await server.stop(0)


async def test_nothing_is_said_before_the_first_snapshot(discovery):
    snapshots, envoy = discovery
    await envoy.ask(CLUSTERS)
    first = asyncio.create_task(envoy.next())
    done, _pending = await asyncio.wait([first], timeout=0.1)
    assert not done
    snapshots.publish(snapshot())
    assert (await first)[0] == CLUSTERS


async def test_only_what_changed_is_sent_again(discovery):
    snapshots, envoy = discovery
    snapshots.publish(snapshot(("a", ("10.0.0.1",))))
    for kind in TYPES:
        await envoy.ask(kind, *(() if kind == CLUSTERS else ("llm/a",)))
        kind_sent, response = await envoy.next()
        assert kind_sent == kind
        await envoy.ask(kind, *(() if kind == CLUSTERS else ("llm/a",)), nonce=response.nonce)
    snapshots.publish(snapshot(("a", ("10.0.0.2",))))
    assert (await envoy.next())[0] == ENDPOINTS
    snapshots.publish(snapshot(("a", ("10.0.0.2",))))
    assert await envoy.nothing()


async def test_a_new_service_is_sent_in_the_order_that_envoy_needs(discovery):
    snapshots, envoy = discovery
    snapshots.publish(snapshot())
    for kind in TYPES:
        await envoy.ask(kind)
        await envoy.next()
    snapshots.publish(snapshot(("a", ("10.0.0.1",))))
    assert [(await envoy.next())[0] for _ in range(3)] == list(TYPES)
    await envoy.ask(ENDPOINTS, "llm/a")  # the new cluster's endpoints are asked for by name
    assert (await envoy.next())[0] == ENDPOINTS


async def test_a_refused_configuration_is_not_repeated_but_the_next_is_tried(discovery, caplog):
    snapshots, envoy = discovery
    snapshots.publish(snapshot())
    await envoy.ask(CLUSTERS)
    _kind, response = await envoy.next()
    await envoy.ask(CLUSTERS, nonce=response.nonce, error="bad cluster")
    assert await envoy.nothing()
    assert "bad cluster" in caplog.text
    snapshots.publish(snapshot(("a", ())))
    assert (await envoy.next())[0] == CLUSTERS


async def test_only_types_that_there_are_are_kept_and_counted_and_a_refusals_words_are_bounded(
    discovery, caplog
):
    """Who reaches the port may invent types without end, and speak long."""
    snapshots, envoy = discovery
    snapshots.publish(snapshot())
    for number in range(3):
        await envoy.ask(f"type.example/{number}", error="no")
    await envoy.ask(CLUSTERS, error="no " * 10_000)
    assert (await envoy.next())[0] == CLUSTERS
    labels = {sample.labels["type"] for each in metrics.ADS_REFUSALS.collect() for sample in each.samples}
    assert labels == {kind.rpartition(".")[2] for kind in TYPES}
    assert all(len(record.getMessage()) < 2 * MESSAGE_LENGTH for record in caplog.records)


@pytest.mark.parametrize("discovery", [-1.0], indirect=True)
async def test_an_outdated_picker_gives_a_new_envoy_what_it_has_and_sends_it_on(discovery, monkeypatch):
    monkeypatch.setattr(ads, "POLL_SECONDS", 0.05)
    snapshots, envoy = discovery
    snapshots.publish(snapshot(("a", ("10.0.0.1",))))
    await envoy.ask(CLUSTERS)
    assert (await envoy.next())[0] == CLUSTERS
    async with asyncio.timeout(30):
        assert await envoy.call.read() is grpc.aio.EOF


@pytest.mark.parametrize("discovery", [-1.0], indirect=True)
async def test_an_outdated_picker_says_nothing_to_an_envoy_that_has_a_configuration(discovery, monkeypatch):
    monkeypatch.setattr(ads, "POLL_SECONDS", 0.05)
    snapshots, envoy = discovery
    snapshots.publish(snapshot(("a", ("10.0.0.1",))))
    await envoy.ask(CLUSTERS, version="newer")
    async with asyncio.timeout(30):
        assert await envoy.call.read() is grpc.aio.EOF
