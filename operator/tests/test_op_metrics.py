"""Conditions as Prometheus is told: one series each, under the reason of now."""

from prometheus_client import REGISTRY

from headrace_operator import metrics
from headrace_operator.api import Condition, Key, PodReason, Reason, ServiceStatus, StatusCondition

KEY = Key("llm", "told")


def status(state, reason):
    condition = StatusCondition(
        type=Condition.READY,
        status=state,
        reason=reason,
        message="m",
        observed_generation=1,
        last_transition_time="2026-01-01T00:00:00Z",
    )
    return ServiceStatus(observed_generation=1, conditions=(condition,))


def told():
    """Value by reason."""
    [family] = [f for f in REGISTRY.collect() if f.name == "headrace_service_condition"]
    return {s.labels["reason"]: s.value for s in family.samples if s.labels["service"] == "told"}


def test_a_condition_is_told_under_its_reason_of_now_until_the_service_is_gone():
    metrics.set_condition_gauges(KEY, status("False", PodReason.LOADING))
    assert told() == {"Loading": 0}
    metrics.set_condition_gauges(KEY, status("True", Reason.ALL_REPLICAS_READY))
    metrics.set_condition_gauges(KEY, status("True", Reason.ALL_REPLICAS_READY))
    assert told() == {"AllReplicasReady": 1}
    metrics.drop_condition_gauges(KEY)
    metrics.drop_condition_gauges(KEY)
    assert told() == {}
    metrics.set_condition_gauges(KEY, status("Unknown", Reason.NO_READY_REPLICAS))
    assert told() == {"NoReadyReplicas": -1}
    metrics.drop_condition_gauges(KEY)
