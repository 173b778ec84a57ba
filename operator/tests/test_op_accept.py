"""What an operator refuses by what it knows of its installation."""

import dataclasses

import pytest
from op_golden import SETTINGS
from op_memory import operator, with_service

from headrace_operator.api import Key

ASKING = dataclasses.replace(SETTINGS, gateway_api_keys=True)


async def accepted(memory, settings):
    """The condition, once an operator with these settings has done its work."""
    running = operator(memory, settings)
    for _ in range(3):
        await running.reconcile(Key("llm", "chat"))
    [found] = [
        condition
        for condition in memory.objects["LLMService", "chat"]["status"]["conditions"]
        if condition["type"] == "Accepted"
    ]
    return found


@pytest.mark.parametrize(
    ("routing", "field"),
    [
        ({"access": {"allowedClients": ["search"]}}, "spec.routing.access.allowedClients"),
        ({"limits": {"requestsPerMinutePerClient": 9}}, "spec.routing.limits.requestsPerMinutePerClient"),
    ],
)
async def test_clients_are_told_apart_only_by_a_gateway_that_asks_for_keys(routing, field):
    """A service that must be closed to some is not made known as one that is open to all."""
    memory = with_service(routing=routing)
    refused = await accepted(memory, SETTINGS)
    assert (refused["status"], refused["reason"]) == ("False", "ApiKeysRequired")
    assert refused["message"].startswith(field)
    assert ("LLMRoute", "chat") not in memory.objects

    assert (await accepted(memory, ASKING))["status"] == "True"
    route = dict(memory.objects["LLMRoute", "chat"]["spec"])
    assert route.get("allowedClients") == routing.get("access", {}).get("allowedClients")
    assert route.get("requestsPerMinutePerClient") == routing.get("limits", {}).get(
        "requestsPerMinutePerClient"
    )

    assert (await accepted(memory, SETTINGS))["status"] == "False"  # the keys were taken out
    assert memory.objects["LLMRoute", "chat"]["spec"] == route


async def test_a_limit_for_all_needs_no_keys():
    memory = with_service(routing={"limits": {"requestsPerMinute": 9}})
    assert (await accepted(memory, SETTINGS))["status"] == "True"
    assert memory.objects["LLMRoute", "chat"]["spec"]["requestsPerMinute"] == 9


async def test_an_account_of_the_namespace_is_used_only_where_the_installation_allows_it():
    memory = with_service(podTemplate={"serviceAccountName": "weights"})
    refused = await accepted(memory, SETTINGS)
    assert (refused["status"], refused["reason"]) == ("False", "ServiceAccountNotAllowed")
    assert refused["message"].startswith("spec.podTemplate.serviceAccountName: weights")
    assert ("Deployment", "chat") not in memory.objects

    allowing = dataclasses.replace(SETTINGS, allow_service_account=True)
    assert (await accepted(memory, allowing))["status"] == "True"
    pod = memory.objects["Deployment", "chat"]["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("weights", False)


async def test_the_account_that_every_pod_has_needs_no_permission():
    memory = with_service(podTemplate={"serviceAccountName": "default"})
    assert (await accepted(memory, SETTINGS))["status"] == "True"
