"""The picker's decisions as replies, and its fleets following the catalog."""

from dataclasses import replace
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


def test_a_request_that_lost_its_engines_goes_to_another_while_there_is_one():
    service = picker(("chat", ("10.0.0.1", "10.0.0.2")))
    for _ in range(5):
        assert service.decide("llm/chat", BODY, lost_with=["10.0.0.1:8000", ""]).host == "10.0.0.2:8000"
    assert service.decide("llm/chat", BODY, lost_with=["10.0.0.1:8000", "10.0.0.2:8000"]) is None
    assert service.decide("llm/chat", BODY, among=["10.0.0.1:8000"], lost_with=["10.0.0.1:8000"]) is None


def test_a_request_that_lost_its_engine_is_not_refused_for_a_long_queue():
    service = picker()
    config = GatewayConfig("llm", "chat", (), "chat", max_queue_ms=1)
    service.set_catalog(Catalog.build([Service(config, ("10.0.0.1",))]))
    busy = replace(IDLE, waiting=50, waiting_prefill_tokens=1_000_000, prefill_tokens_per_second=1000.0)
    service.observe(ServiceKey("llm", "chat"), "10.0.0.1", busy)
    assert service.decide("llm/chat", BODY).status == 429
    assert service.decide("llm/chat", BODY, lost_with=[]) == Choice("10.0.0.1:8000", "SAL")


def test_only_the_relay_has_tokens_to_go_on_after():
    body = b'{"prompt": "hi", "vllm_xargs": {"headrace_resume_ids": [1]}}'
    service = picker(("chat", ("10.0.0.1",)))
    refused = service.decide("llm/chat", body)
    assert (refused.status, refused.param) == (400, "vllm_xargs")
    assert service.decide("llm/chat", body, lost_with=[]) == Choice("10.0.0.1:8000", "SAL")
