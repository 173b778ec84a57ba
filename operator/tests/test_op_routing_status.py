"""RoutingReady says what the picker reports and nothing else; pods wait for it at their readiness gate."""

import pytest
from op_memory import operator, with_service
from op_world import applied, body, pod, routed

from headrace_operator.api import Key, Reason, parse_service
from headrace_operator.decide.observation import observe
from headrace_operator.decide.rollout import assess_rollout
from headrace_operator.decide.routing_status import newly_routed_pods, routing_ready_state
from headrace_operator.names import ROUTED_GATE

KEY = Key("llm", "chat")


def seen(status, *pods):
    """What is there, with this status of the route."""
    objects = applied(body())
    for each in objects:
        if each["kind"] == "LLMRoute":
            each["status"] = status
    return observe(objects, pods, {})


def gated(name, routed="False", containers="True", **more):
    """A pod of which all but the gate is ready."""
    raw = pod(name, ready=False, **more)
    raw["spec"]["readinessGates"] = [{"conditionType": ROUTED_GATE}]
    raw["status"]["conditions"] += [
        {"type": "ContainersReady", "status": containers},
        {"type": ROUTED_GATE, "status": routed},
    ]
    return raw


RUNNING = {
    "containerStatuses": [{"name": "engine", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]
}


@pytest.mark.parametrize(
    ("status", "holds", "reason", "words"),
    [
        (None, None, Reason.NOT_REPORTED, "look at the pods of the gateway and the picker"),
        (routed(generation=0), None, Reason.NOT_REPORTED, "generation 1 of LLMRoute chat"),
        (routed(Accepted="Refused"), False, Reason.ROUTE_REFUSED, "words"),
        (routed(Programmed="Refused"), False, Reason.ENVOY_REFUSED, "words"),
        (routed(Programmed="NoEnvoy"), False, Reason.NO_ENVOY, "look at the pods"),
        (routed(Programmed="Pending"), False, Reason.PENDING, "words"),
        (routed(Programmed="NewlyInvented"), False, Reason.PENDING, "words"),
        (routed("b"), False, Reason.ENDPOINTS_MISSING, "1 of 1 ready replicas"),
        (routed("a"), True, Reason.ROUTED, "2 Envoys route to 1 ready replicas"),
    ],
)
def test_routing_is_ready_when_the_picker_says_so(status, holds, reason, words):
    found = routing_ready_state(KEY, seen(status, pod("a")))
    assert (found.holds, found.reason) == (holds, reason)
    assert words in found.message


def test_without_route_or_ready_replica_it_is_not():
    assert routing_ready_state(KEY, observe([], [], {})).reason == Reason.NOT_ACCEPTED
    assert (
        routing_ready_state(KEY, seen(routed("a"), pod("a", ready=False))).reason == Reason.NO_READY_REPLICAS
    )


def test_pods_are_routed_when_every_envoy_has_them_whose_address_was_perhaps_anothers():
    pods = [gated("new"), gated("unknown"), gated("done", routed="True"), pod("ungated")]
    status = routed("new", "done", "ungated", "dead")
    assert [each.name for each in newly_routed_pods(KEY, seen(status, *pods))] == ["new"]
    status["pods"] = ["dead"]
    assert list(newly_routed_pods(KEY, seen(status, *pods))) == []
    assert list(newly_routed_pods(KEY, seen(None, *pods))) == []


async def test_the_gate_is_opened_once_also_for_a_service_that_is_paused_or_refused():
    for change in (
        {"metadata": {"annotations": {"headrace.dev/paused": "true"}}},
        {"spec": {"scheduling": {"policy": "Unknown"}}},
    ):
        memory = with_service()
        await operator(memory).reconcile(KEY)
        memory.objects["LLMRoute", "chat"]["status"] = routed("new")
        memory.objects["LLMService", "chat"]["metadata"] |= change.get("metadata", {})
        memory.objects["LLMService", "chat"]["spec"] |= change.get("spec", {})
        memory.store(gated("new"))
        memory.writes.clear()
        for _ in range(2):
            await operator(memory).reconcile(KEY)
        assert memory.writes.count(("write", "Pod", "new")) == 1


def test_what_waits_for_the_gateway_says_so_and_is_no_fault_of_the_spec():
    objects = applied(body())
    live = next(each for each in objects if each["kind"] == "Deployment")
    live["status"]["readyReplicas"] = 0
    live["status"]["conditions"] = [
        {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    ]
    inputs = live["metadata"]["annotations"]["headrace.dev/inputs-hash"]
    waiting = gated("new", **RUNNING)
    waiting["metadata"]["annotations"] = {"headrace.dev/inputs-hash": inputs}
    there = observe(objects, [waiting], {})
    assert there.pods[0].problem.reason == "NotRouted"
    assert assess_rollout(parse_service(body()), live, there)[1].failure == ""
    loading = gated("new", containers="False", **RUNNING)
    loading["metadata"]["annotations"] = waiting["metadata"]["annotations"]
    assert assess_rollout(parse_service(body()), live, observe(objects, [loading], {}))[1].failure != ""
