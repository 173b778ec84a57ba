"""A real Envoy that stands for a gateway of others asks the real endpoint picker where requests go.

Its pool of engines is whatever the picker names, its health check of the picker gRPC's; both are as Gateway
API's Inference Extension has them, TLS without a check of the certificate included.
"""

import asyncio
import json
import subprocess
import sys
import types

import aiohttp
import pytest
from gw_engine import Engine
from gw_rig import ENVOY, HERE, chat, posted, until

from e2e import ports
from headrace_engine.contracts import GatewayConfig, encode
from headrace_gateway.headers import DESTINATION_HEADER

pytestmark = [pytest.mark.envoy, pytest.mark.timeout(240)]

CHAT = "/v1/chat/completions"
TYPE = "type.googleapis.com/envoy.extensions"
PROCESSOR = "envoy.service.ext_proc.v3.ExternalProcessor"


def typed(kind, **fields):
    return {"@type": f"{TYPE}.{kind}", **fields}


def gateway(port, admin_port, grpc_port, mode):
    """Envoy's configuration: each request by way of the picker, whose answers Envoy does not do without."""
    picks = {
        "name": "envoy.filters.http.ext_proc",
        "typed_config": typed(
            "filters.http.ext_proc.v3.ExternalProcessor",
            grpc_service={"envoy_grpc": {"cluster_name": "picker"}, "timeout": "20s"},
            message_timeout="20s",
            processing_mode={
                "request_body_mode": mode,
                "request_trailer_mode": "SEND" if mode == "FULL_DUPLEX_STREAMED" else "SKIP",
                "response_header_mode": "SEND",
                "response_body_mode": mode if mode == "FULL_DUPLEX_STREAMED" else "NONE",
                "response_trailer_mode": "SEND" if mode == "FULL_DUPLEX_STREAMED" else "SKIP",
            },
        ),
    }
    router = {"name": "envoy.filters.http.router", "typed_config": typed("filters.http.router.v3.Router")}
    host = {
        "name": "all",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "pool", "timeout": "0s"}}],
    }
    manager = typed(
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="gateway",
        route_config={"virtual_hosts": [host]},
        http_filters=[picks, router],
    )
    original = {"use_http_header": True, "http_header_name": DESTINATION_HEADER}
    pool = {"name": "pool", "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED"}
    http2 = {"explicit_http_config": {"http2_protocol_options": {}}}
    picker = {
        "name": "picker",
        "type": "STATIC",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed(
                "upstreams.http.v3.HttpProtocolOptions", **http2
            )
        },
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": typed("transport_sockets.tls.v3.UpstreamTlsContext"),
        },
        "health_checks": [
            {
                "timeout": "5s",
                "interval": "0.2s",
                "no_traffic_interval": "0.2s",
                "unhealthy_threshold": 1,
                "healthy_threshold": 1,
                "grpc_health_check": {"service_name": PROCESSOR},
            }
        ],
        "load_assignment": {
            "cluster_name": "picker",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(grpc_port)}}]}],
        },
    }
    return {
        "admin": {"address": address(admin_port)},
        "static_resources": {
            "listeners": [
                {
                    "address": address(port),
                    "filter_chains": [
                        {
                            "filters": [
                                {
                                    "name": "envoy.filters.network.http_connection_manager",
                                    "typed_config": manager,
                                }
                            ]
                        }
                    ],
                }
            ],
            "clusters": [{**pool, "original_dst_lb_config": original}, picker],
        },
    }


def address(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def start(log, *commands):
    return [subprocess.Popen(command, stdout=log, stderr=log) for command in commands]


@pytest.fixture(params=["BUFFERED", "FULL_DUPLEX_STREAMED"])
async def pool(request, tmp_path, session):
    """Two engines behind Envoy and endpoint picker; both are ready."""
    port, admin_port, grpc_port, http_port, engine_port, sidecar_port = ports.free(6)
    engines = [await Engine(f"127.0.9.{n}", engine_port, sidecar_port).start() for n in (1, 2)]
    config = GatewayConfig(
        "llm", "chat", ("chat",), "chat", port=engine_port, sidecar_port=sidecar_port, max_queue_ms=1000
    )
    catalog = [{"config": encode(config), "addresses": [engine.address for engine in engines]}]
    (tmp_path / "catalog.json").write_text(json.dumps(catalog))
    (tmp_path / "envoy.json").write_text(json.dumps(gateway(port, admin_port, grpc_port, request.param)))
    picker = [sys.executable, str(HERE / "gw_endpoint_picker.py"), str(tmp_path / "catalog.json")]
    envoy = [str(ENVOY), "-c", str(tmp_path / "envoy.json"), "--concurrency", "1", "--disable-hot-restart"]
    with (tmp_path / "log").open("ab") as log:
        started = start(log, [*picker, str(grpc_port), str(http_port)], [*envoy, "-l", "warning"])
    url = f"http://127.0.0.1:{port}{CHAT}"

    async def serves():
        try:
            return (await posted(session, url, chat("chat")))[0] == 200
        except aiohttp.ClientError:  # of Envoy's own answers, too, until it has found the picker
            return False

    try:
        await until(serves, f"the pool serves: {tmp_path / 'log'}")
        yield types.SimpleNamespace(url=url, engines=engines, picker=started[0])
    finally:
        for process in started:
            process.kill()
            process.wait()
        for engine in engines:
            await engine.stop()


async def test_requests_go_where_the_picker_says(pool, session):
    for full, free in (pool.engines, reversed(pool.engines)):
        full.load(waiting=1, waiting_prefill_tokens=9000)
        free.load(waiting=0, waiting_prefill_tokens=0)

        async def all_go_to_the_free(free=free):
            found = [await posted(session, pool.url, chat("chat", "x" * 100_000)) for _ in range(3)]
            return found == [(200, {"engine": free.address})] * 3

        await until(all_go_to_the_free, "requests go to the engine that is free")


async def test_what_goes_through_is_whole_and_streams(pool, session):
    body = chat("chat", "y" * 500_000, stream=True, max_tokens=5)
    async with session.post(pool.url, json=body) as response:
        assert response.status == 200
        lines = [line async for line in response.content if line.startswith(b"data: ")]
    assert len(lines) == 6
    [served] = [each for engine in pool.engines for each in engine.served if each["bytes"] > 500_000]
    assert served["bytes"] == len(json.dumps(body))


async def test_nothing_of_an_answer_that_comes_at_once_is_lost(pool, session):
    for engine in pool.engines:
        engine.gap = 0

    async def asks():
        async with session.post(pool.url, json=chat("chat", stream=True, max_tokens=5)) as response:
            return (await response.read()).count(b"data: ")

    for _ in range(20):
        assert await asyncio.gather(*(asks() for _ in range(10))) == [6] * 10


async def test_refusals_reach_the_client(pool, session):
    status, told = await posted(session, pool.url, {"model": "chat"})
    assert (status, told["error"]["code"]) == (400, "invalid_body")
    for engine in pool.engines:
        engine.load(waiting=9, waiting_prefill_tokens=1_000_000)

    async def overloaded():
        async with session.post(pool.url, json=chat("chat")) as response:
            return response.status == 429 and int(response.headers["retry-after"]) >= 1

    await until(overloaded, "a service that is overloaded says so")


async def test_an_answer_outlives_the_picker(pool, session):
    async with session.post(pool.url, json=chat("chat", stream=True, max_tokens=20)) as response:
        await response.content.readline()
        pool.picker.kill()
        assert (await response.content.read()).endswith(b"data: [DONE]\n\n")
