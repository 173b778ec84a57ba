"""LLMRoutes become services; forged, broken or boundless ones change nothing."""

import pytest
from gw_objects import llmroute

from headrace_engine.contracts import ContractError, GatewayConfig
from headrace_gateway.catalog import ServiceKey
from headrace_gateway.kube.llmroutes import MESSAGE_LENGTH, RouteReader, parse_route

KEY = ServiceKey("llm", "chat")
CONFIG = GatewayConfig("llm", "chat", ("chat",), "chat")
ACCEPTED = {"conditions": [{"type": "Accepted", "status": "True", "observedGeneration": 1}]}


def configs(reader, *routes):
    return [service.config for service in reader.read(routes)]


def test_a_route_speaks_for_the_service_of_its_own_name_whatever_it_says():
    assert configs(RouteReader(), llmroute()) == [CONFIG]
    forged = llmroute(namespace="evil")
    forged["spec"] |= {"namespace": "llm", "name": "chat"}
    assert configs(RouteReader(), forged)[0].namespace == "evil"


@pytest.mark.parametrize("owner", ["", "other"])
def test_a_route_that_its_service_does_not_own_is_refused(owner):
    reader = RouteReader()
    assert configs(reader, llmroute(owner=owner)) == []
    assert "not owned by LLMService chat" in reader.routes[KEY].error


def test_a_route_of_another_kind_of_owner_is_refused():
    route = llmroute()
    route["metadata"]["ownerReferences"][0]["kind"] = "ConfigMap"
    assert configs(RouteReader(), route) == []


def test_a_route_that_was_accepted_goes_on_when_its_service_is_deleted_without_it():
    assert configs(RouteReader(), llmroute(owner="", status=ACCEPTED)) == [CONFIG]
    assert configs(RouteReader(), llmroute(owner="", status=ACCEPTED, generation=2)) == []
    assert configs(RouteReader(), llmroute(owner="other", status=ACCEPTED)) == []


def test_a_broken_route_keeps_the_last_good_one_and_is_logged_once(caplog):
    reader = RouteReader()
    configs(reader, llmroute())
    for _ in range(2):
        assert configs(reader, llmroute(port=0, generation=2)) == [CONFIG]
    assert len([record for record in caplog.records if "llm/chat" in record.getMessage()]) == 1
    assert configs(reader) == []
    assert configs(reader, llmroute(port=0, generation=3)) == []


def test_a_route_that_was_made_anew_does_not_inherit_the_last_good_one():
    reader = RouteReader()
    configs(reader, llmroute())
    assert configs(reader, llmroute(uid="2", owner="")) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("port", 0),
        ("sidecarPort", 65536),
        ("models", [f"m{number}" for number in range(17)]),
        ("models", [""]),
        ("models", ["m" * 254]),
        ("models", ["chat\n"]),
        ("models", "chat"),
        ("balancer", "Fastest"),
        ("allowedClients", ["search", ""]),
        ("allowedClients", ["\ud800"]),
        ("requestsPerMinute", 0),
        ("requestsPerMinutePerClient", 2**32),
    ],
)
def test_what_envoy_would_refuse_is_refused_here(field, value):
    with pytest.raises(ContractError, match=f"spec.{field}"):
        parse_route(KEY, llmroute(**{field: value}))


def test_what_is_said_of_a_broken_route_is_bounded():
    reader = RouteReader()
    reader.read([llmroute(balancer="x" * 100_000)])
    assert 0 < len(reader.routes[KEY].error) <= MESSAGE_LENGTH
