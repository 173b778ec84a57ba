"""Conditions as Prometheus is told: one series each, under the reason of now."""

from prometheus_client import REGISTRY

from headrace_operator import metrics
from headrace_operator.api import (
    POOL_KIND,
    Condition,
    Key,
    PodReason,
    PoolStatus,
    Reason,
    ServiceStatus,
    StatusCondition,
)
from headrace_operator.api.placement import PlannedServiceStatus, PlanStatus

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
    metrics.show_service(KEY, status("False", PodReason.LOADING))
    assert told() == {"Loading": 0}
    metrics.show_service(KEY, status("True", Reason.ALL_REPLICAS_READY))
    metrics.show_service(KEY, status("True", Reason.ALL_REPLICAS_READY))
    assert told() == {"AllReplicasReady": 1}
    metrics.drop_service(KEY)
    metrics.drop_service(KEY)
    assert told() == {}
    metrics.show_service(KEY, status("Unknown", Reason.NO_READY_REPLICAS))
    assert told() == {"NoReadyReplicas": -1}
    metrics.drop_service(KEY)


def in_pool(metric, *shown):
    """Values of a metric's series for the pool `shared`, by these labels."""
    [family] = [f for f in REGISTRY.collect() if f.name == metric]
    samples = [s for s in family.samples if s.labels["pool"] == "shared"]
    return {tuple(s.labels[name] for name in shown): s.value for s in samples}


def pool_status(reason, *services, **plan):
    [condition] = status("False", reason).conditions
    made = PlanStatus(time="2026-01-01T00:00:00Z", services=services, **plan) if plan else None
    return PoolStatus(observed_generation=1, conditions=(condition,), plan=made)


def test_a_pools_last_plan_is_told_until_it_has_none():
    key = Key("llm", "shared", POOL_KIND)
    chat = PlannedServiceStatus(name="chat", measured_percent=90, today_percent=92, planned_percent=95)
    code = PlannedServiceStatus(name="code", planned_percent=100)
    metrics.show_pool(key, pool_status(Reason.TURN_SERVER_NOT_READY, chat, code, gpus=2, gpus_today=3))
    assert in_pool("headrace_pool_gpus", "when") == {("Today",): 3, ("Planned",): 2}
    assert in_pool("headrace_pool_in_time_ratio", "service", "when") == {
        ("chat", "Measured"): 0.9,
        ("chat", "Today"): 0.92,
        ("chat", "Planned"): 0.95,
        ("code", "Planned"): 1.0,
    }
    metrics.show_pool(key, pool_status(Reason.TURN_SERVER_NOT_READY, code, gpus=1, gpus_today=1))
    assert in_pool("headrace_pool_in_time_ratio", "service", "when") == {("code", "Planned"): 1.0}
    metrics.show_pool(key, pool_status(Reason.MEMBER_NOT_FOUND))
    assert in_pool("headrace_pool_gpus", "when") == {}
    assert in_pool("headrace_pool_condition", "reason") == {("MemberNotFound",): 0}
    metrics.drop_pool(key)
    metrics.drop_pool(key)
    assert in_pool("headrace_pool_condition", "reason") == {}


def test_conditions_that_an_object_no_longer_has_are_not_told():
    metrics.show_service(KEY, status("True", Reason.ALL_REPLICAS_READY))
    metrics.show_service(KEY, ServiceStatus(observed_generation=2, conditions=()))
    assert told() == {}
    metrics.drop_all_objects()
