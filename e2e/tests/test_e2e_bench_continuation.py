"""Streams from two real engines, through Envoy, picker and relay: one is killed, and no client sees it."""

import asyncio
import json

import httpx
import pytest

from e2e.bench.continuation import features, resuming_engines
from e2e.bench.continuation.signer import Signer
from e2e.bench.continuation.streams import ask
from e2e.bench.gateway.testbed import start_testbed
from headrace_engine.contracts import GatewayConfig, encode

ADDRESSES = ("127.0.9.1", "127.0.9.2")
SERVICE = "bench/tiny"
UNDER_WAY = 5  # streams that an engine runs when it is killed, or more

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.envoy,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),  # torch's own, as the model is made
]


async def test_a_killed_engine_costs_no_stream_and_changes_no_answer(tmp_path):
    signer = Signer()
    signer.write(tmp_path / "private-key.pem")
    features.write_model(tmp_path / "tiny")
    with start_testbed(tmp_path) as made:
        servers = [
            resuming_engines.start_engine(
                tmp_path / address,
                tmp_path / "tiny",
                SERVICE,
                signer,
                address=address,
                port=made.ports["engine"],
            )
            for address in ADDRESSES
        ]
        try:
            for server in servers:
                await asyncio.to_thread(server.wait_ready)
            (tmp_path / "catalog.json").write_text(json.dumps([catalog_entry(made)]))
            made.start_relay(tmp_path / "private-key.pem")
            made.start_picker()
            made.start_envoy()
            await made.ready(0)
            async with httpx.AsyncClient(timeout=300, limits=httpx.Limits()) as client:
                whole = await all_features(client, servers[1].url)
                cut = asyncio.create_task(
                    all_features(client, f"http://{made.gateway.host}:{made.gateway.port}")
                )
                while await running(client, servers[0].url) < UNDER_WAY:
                    assert not cut.done()
                    await asyncio.sleep(0.02)
                servers[0].kill()
                answers = await cut
                relay = await client.get(f"http://127.0.0.1:{made.ports['relay_http']}/metrics")
        finally:
            for server in servers:
                server.stop()
    assert {name: whole[name].difference(answers[name], 0) for name in whole} == dict.fromkeys(whole, "")
    resumed = 'headrace_relay_streams_resumed_total{namespace="bench",service="tiny"} '
    [count] = [line for line in relay.text.splitlines() if line.startswith(resumed)]
    assert float(count.removeprefix(resumed)) >= UNDER_WAY / 2  # some may end as it is killed


def catalog_entry(made):
    config = GatewayConfig(
        namespace="bench",
        name="tiny",
        models=(features.MODEL, SERVICE),
        served_name=features.MODEL,
        balancer="RoundRobin",
        port=made.ports["engine"],
        sidecar_port=made.ports["sidecar"],
        resume=True,
    )
    return {"config": encode(config), "addresses": ADDRESSES}


async def running(client, url):
    """How many requests an engine computes."""
    lines = (await client.get(f"{url}/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running"))


async def all_features(client, url):
    """An answer with each feature, all asked for at once."""

    async def one(name):
        path, body = features.body(name, f"Once upon a time {name}")
        return await ask(client, url + path, body)

    found = await asyncio.gather(*map(one, features.FEATURES))
    return dict(zip(features.FEATURES, found, strict=True))
