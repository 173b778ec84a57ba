"""ConfigMaps and EndpointSlices become a catalog; broken or foreign ones change nothing."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from headrace_engine.contracts import ContractError, GatewayConfig, dumps
from headrace_sidecar.gateway.catalog import ServiceKey
from headrace_sidecar.gateway.kubernetes_source import ConfigReader, KubernetesSource, join, parse

KEY = ServiceKey("llm", "chat")
CONFIG = GatewayConfig("llm", "chat", ("chat",), "chat")


def config_map(text, namespace="llm", name="chat-gateway"):
    return {
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "data": {"gateway.json": text},
    }


def endpoint_slice(*endpoints, family="IPv4", service="chat", namespace="llm"):
    return {
        "metadata": {"namespace": namespace, "name": "x", "labels": {"headrace.dev/service": service}},
        "addressType": family,
        "endpoints": [
            {"addresses": [address], "conditions": conditions} for address, conditions in endpoints
        ],
    }


def test_configuration_and_ready_endpoints_are_joined():
    services = ConfigReader().read([config_map(dumps(CONFIG))])
    catalog = join(
        services,
        [
            endpoint_slice(("10.0.0.3", {"ready": True}), ("10.0.0.2", {}), ("10.0.0.1", {"ready": False})),
            endpoint_slice(("fd00::2", {"ready": True}), family="IPv6"),
            endpoint_slice(("10.0.0.9", {"ready": True}), service="other"),
            endpoint_slice(("10.0.0.8", {"ready": True}), namespace="elsewhere"),
        ],
    )
    assert catalog.services.keys() == {KEY}
    assert catalog.services[KEY].addresses == ("10.0.0.2", "10.0.0.3")


def test_a_broken_configuration_keeps_the_last_good_one_and_is_logged_once(caplog):
    reader = ConfigReader()
    reader.read([config_map(dumps(CONFIG))])
    for _ in range(2):
        assert [service.config for service in reader.read([config_map("{")])] == [CONFIG]
    assert len([record for record in caplog.records if "llm/chat" in record.getMessage()]) == 1
    assert reader.read([]) == []
    assert reader.read([config_map("{")]) == []


@pytest.mark.parametrize(
    ("namespace", "name"), [("evil", "chat-gateway"), ("llm", "other-gateway"), ("llm", "chat")]
)
def test_a_config_map_speaks_only_for_its_own_service(namespace, name):
    key = ServiceKey(namespace, name.removesuffix("-gateway"))
    if key == KEY:
        assert parse(key, dumps(CONFIG)) == CONFIG
    else:
        with pytest.raises(ContractError, match="llm/chat"):
            parse(key, dumps(CONFIG))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("port", 0),
        ("sidecar_port", 65536),
        ("models", tuple(f"m{number}" for number in range(17))),
        ("models", ("",)),
        ("models", ("m" * 254,)),
        ("models", ("chat\n",)),
    ],
)
def test_what_envoy_would_refuse_is_refused_here(field, value):
    with pytest.raises(ContractError, match=field):
        parse(KEY, dumps(replace(CONFIG, **{field: value})))


async def test_a_catalog_that_cannot_be_published_does_not_end_the_source(caplog):
    source, published = KubernetesSource(None, ()), asyncio.Queue()

    def publish(catalog):
        published.put_nowait(catalog)
        if published.qsize() == 1:
            raise ValueError("Envoy's configuration can't be built")

    task = asyncio.create_task(source._publish_changes(publish))
    for store in (*source._configs, *source._slices):
        store.replace([])
    async with asyncio.timeout(30):
        while published.qsize() < 2:
            source._configs[0].replace([])
            await asyncio.sleep(0.001)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert "the one before stays in force" in caplog.text
