"""The picker's decisions as replies, and its fleets following the catalog."""

from random import Random

from gw_reports import IDLE

from headrace_engine.contracts import GatewayConfig
from headrace_gateway.catalog import Catalog, Service, ServiceKey
from headrace_gateway.pick.picker import Choice, Picker

BODY = b'{"messages": [{"role": "user", "content": "hi"}]}'


def picker(*services):
    made = Picker(lambda: 0.0, Random(1))
    made.set_catalog(catalog(*services))
    return made


def catalog(*services):
    return Catalog.build(
        [Service(GatewayConfig("llm", name, (), name), addresses) for name, addresses in services]
    )


def test_an_engine_is_an_address_that_envoy_knows():
    assert picker(("chat", ("10.0.0.1",))).decide("llm/chat", BODY) == Choice("10.0.0.1:8000", "SAL")
    assert picker(("chat", ("fd00::1",))).decide("llm/chat", BODY) == Choice("[fd00::1]:8000", "SAL")


def test_refusals():
    service = picker(("empty", ()), ("chat", ("10.0.0.1",)))
    assert service.decide("llm/empty", BODY) is None  # Envoy finds out whether an engine that starts serves
    assert service.decide("llm/unknown", BODY) is None
    assert service.decide("llm/chat", b"{}").status == 400


def test_a_changed_catalog_keeps_the_fleets_that_stay():
    service = picker(("a", ("10.0.0.1",)), ("b", ()))
    service.observe(ServiceKey("llm", "a"), "10.0.0.1", IDLE)
    kept = service.fleets["llm/a"]
    service.set_catalog(catalog(("a", ("10.0.0.1", "10.0.0.2")), ("c", ())))
    assert service.fleets.keys() == {"llm/a", "llm/c"}
    assert service.fleets["llm/a"] is kept
    assert kept.endpoints["10.0.0.1"].report == IDLE
    service.observe(ServiceKey("llm", "gone"), "10.0.0.9", IDLE)
