"""The picker's decisions as replies, and its fleets following the catalog."""

from dataclasses import replace
from random import Random

import pytest
from gw_reports import IDLE

from headrace_engine.contracts import GatewayConfig
from headrace_gateway.catalog import Catalog, Service, ServiceKey
from headrace_gateway.pick.picker import Choice, Picker
from headrace_gateway.pick.rebalance import TERMINATING, Leaving, Surplus
from headrace_gateway.replies import STAY

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


@pytest.mark.parametrize(
    ("settings", "revisions", "moves"),
    [
        ({"rebalance": True}, ("one", "one"), True),
        ({"rebalance": False}, ("one", "one"), False),
        ({"rebalance": True, "resume": False}, ("one", "one"), False),
        ({"rebalance": True}, ("one", "two"), False),  # the other may have another model
        ({"rebalance": True}, ("", ""), False),
    ],
)
def test_an_engine_where_requests_wait_hands_over_to_one_of_its_template(settings, revisions, moves):
    config = GatewayConfig("llm", "chat", (), "chat", **{"resume": True, **settings})
    addresses = ("10.0.0.1", "10.0.0.2")
    told = {address: revision for address, revision in zip(addresses, revisions, strict=True) if revision}
    service = picker()
    service.set_catalog(Catalog.build([Service(config, addresses, revisions=told)]))
    service.observe(ServiceKey("llm", "chat"), "10.0.0.1", replace(IDLE, running=3, waiting=1))
    service.observe(ServiceKey("llm", "chat"), "10.0.0.2", IDLE)
    assert service.surpluses() == ({"10.0.0.1:8000": Surplus(0.25, "Waiting")} if moves else {})


def test_an_engine_that_is_being_stopped_hands_over_all():
    config = GatewayConfig("llm", "chat", (), "chat", resume=True, drain="Move")
    revisions = dict.fromkeys(("10.0.0.1", "10.0.0.2"), "one")
    service = picker()
    service.set_catalog(
        Catalog.build([Service(config, ("10.0.0.2",), terminating=("10.0.0.1",), revisions=revisions)])
    )
    assert service.surpluses() == {"10.0.0.1:8000": TERMINATING}


def two_engines(revision="one", **loads):
    """A picker that knows two engines of one template, with these loads, and one of another."""
    addresses = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}
    config = GatewayConfig("llm", "chat", (), "chat", resume=True, rebalance=True)
    revisions = {"10.0.0.1": revision, "10.0.0.2": revision, "10.0.0.3": "two"}
    service = picker()
    service.set_catalog(Catalog.build([Service(config, tuple(revisions), revisions=revisions)]))
    for name, address in addresses.items():
        service.observe(ServiceKey("llm", "chat"), address, replace(IDLE, **loads.get(name, {})))
    return service


ENGINES = [f"10.0.0.{number}:8000" for number in (1, 2, 3)]
BACK = Leaving("SteppedBack", ENGINES[0])
QUEUE = {"running": 20, "waiting": 5, "waiting_prefill_tokens": 20_000}


@pytest.mark.parametrize(
    ("loads", "reason", "answered", "moves"),
    [
        ({"a": QUEUE}, "Waiting", 0, True),
        ({"a": QUEUE, "b": QUEUE}, "Waiting", 0, False),
        ({}, "Waiting", 0, False),  # it waits for nothing
        ({"a": {"step_seconds": 0.04}}, "Running", 500, True),
        ({"a": {"step_seconds": 0.04}}, "Running", 0, False),  # nobody knows that it will be long
        ({"a": {"step_seconds": 0.04}, "b": {"running": 200}}, "Running", 500, False),
    ],
)
def test_a_stream_that_could_stay_moves_only_where_that_pays(loads, reason, answered, moves):
    service = two_engines(**loads)
    body = b'{"prompt": "hi", "vllm_xargs": {"headrace_resume_ids": %s}}' % str([1] * answered).encode()
    leaving = Leaving(reason, "10.0.0.1:8000")
    for _ in range(5):
        chosen = service.decide("llm/chat", body, lost_with=["10.0.0.1:8000"], leaving=leaving)
        assert chosen == (Choice("10.0.0.2:8000", "SAL") if moves else STAY)
        service.fleets["llm/chat"].endpoints["10.0.0.2"].expire_bookings(1000.0)


def test_what_an_engine_computed_before_keeps_a_stream_there():
    service = two_engines(a=QUEUE)
    body = b'{"prompt": "%s"}' % (b"once upon a time " * 1000)
    leaving = Leaving("Waiting", "10.0.0.1:8000")
    assert service.decide("llm/chat", body, lost_with=[], leaving=leaving) == Choice("10.0.0.2:8000", "SAL")
    service = two_engines(a=QUEUE, b={"running": 50})
    service.decide("llm/chat", body, among=["10.0.0.1:8000"])
    assert service.decide("llm/chat", body, lost_with=[], leaving=leaving) == STAY


FULL = {"running": 20, "free_kv_blocks": 1_500}  # of 10,000: 10 % are to stay free, so room for 8,000 tokens


@pytest.mark.parametrize(
    ("loads", "answered", "host"),
    [
        ({"b": QUEUE}, 100, "10.0.0.1:8000"),  # the engine that gave it back is as good as any
        ({"a": QUEUE}, 100, "10.0.0.2:8000"),
        ({"a": QUEUE, "b": FULL}, 7_900, "10.0.0.2:8000"),
        ({"a": QUEUE, "b": FULL}, 8_100, None),
        ({"a": QUEUE, "b": QUEUE}, 0, None),
    ],
)
def test_a_stream_that_was_handed_back_goes_on_where_there_is_room_for_all_of_it(loads, answered, host):
    body = b'{"prompt": "hi", "vllm_xargs": {"headrace_resume_ids": %s}}' % str([1] * answered).encode()
    chosen = two_engines(**loads).decide("llm/chat", body, lost_with=[], leaving=BACK)
    assert chosen == (Choice(host, "SAL") if host else STAY)


def test_a_stream_that_was_handed_back_goes_on_though_its_engine_is_gone():
    gone = Leaving("SteppedBack", "10.9.9.9:8000")
    service = two_engines(a=QUEUE, c=QUEUE)
    assert service.decide("llm/chat", BODY, lost_with=[], leaving=gone) == Choice("10.0.0.2:8000", "SAL")
    assert two_engines().decide("llm/chat", BODY, lost_with=ENGINES, leaving=gone) is None


def test_engines_whose_template_nobody_knows_are_like_none_but_themselves():
    service = two_engines("", a=QUEUE)
    waiting = Leaving("Waiting", ENGINES[0])
    assert service.decide("llm/chat", BODY, lost_with=[], leaving=waiting) == STAY
    assert service.decide("llm/chat", BODY, lost_with=[], leaving=BACK) == STAY
    assert two_engines("").decide("llm/chat", BODY, lost_with=[], leaving=BACK) == Choice(ENGINES[0], "SAL")


def test_without_an_engine_of_its_kind_a_stream_goes_on_as_if_its_engine_were_lost():
    assert two_engines().decide("llm/chat", BODY, lost_with=ENGINES[:2], leaving=BACK) is None


def test_a_stream_stays_with_an_engine_that_nobody_knows():
    assert (
        two_engines().decide("llm/chat", BODY, lost_with=[], leaving=Leaving("Waiting", "10.9.9.9:8000"))
        == STAY
    )
