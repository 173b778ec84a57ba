"""A plan is carried out where that pays for the moves; groups keep their names, and so their GPUs."""

import pytest
from op_planning import planned_groups

from headrace_operator.api.placement import PlacementStatus, PlannedServiceStatus, PlanStatus
from headrace_operator.decide.adoption import adopt, place

NOON, LATER, TWO = "2026-01-01T12:00:00Z", "2026-01-01T12:15:00Z", "2026-01-01T14:00:00Z"


def plan(*groups, today=2, **percents):
    """A plan of groups: GPUs, then members; `percents`: of a service, today's and the plan's."""
    return PlanStatus(
        time=NOON,
        gpus=sum(group[0] for group in groups),
        gpus_today=today,
        groups=planned_groups(*groups),
        services=tuple(
            PlannedServiceStatus(name=name, requests=100, today_percent=now, planned_percent=then)
            for name, (now, then) in percents.items()
        ),
    )


def adopted(*groups, time=NOON):
    return PlacementStatus(time=time, services=place(plan(*groups), ()))


def where(placed):
    return {each.name: (each.group, each.tensor_parallel_size, each.replicas) for each in placed}


def test_each_service_has_one_place():
    found = place(plan((2, "big"), (2, "big"), (1, "chat", "code"), (1, "own")), ())
    assert where(found) == {
        "big": (None, 2, 2),
        "chat": ("auto-1", 1, 1),
        "code": ("auto-1", 1, 1),
        "own": (None, 1, 1),
    }
    big, chat, *_ = found
    assert (chat.gpu_memory_utilization_percent, chat.kv_cache_memory_bytes) == (45, 500_000_000)
    assert (big.gpu_memory_utilization_percent, big.kv_cache_memory_bytes) == (None, None)


def test_a_group_that_keeps_a_member_keeps_its_name_and_others_get_a_free_one():
    before = place(plan((1, "a", "b"), (1, "c", "d"), (2, "e", "f")), ())
    assert {each.name: each.group for each in before} == {
        "a": "auto-1", "b": "auto-1", "c": "auto-2", "d": "auto-2", "e": "auto-3", "f": "auto-3",
    }  # fmt: skip
    then = place(plan((1, "c", "g"), (1, "a"), (1, "b"), (1, "d", "h"), (4, "e", "f")), before)
    assert {each.name: each.group for each in then} == {
        "a": None, "b": None, "c": "auto-2", "g": "auto-2", "d": "auto-4", "h": "auto-4",
        "e": "auto-5", "f": "auto-5",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("found", "since", "changes"),
    [
        (plan((1, "chat", "code"), chat=(99, 97), code=(99, 99)), None, True),
        (plan((1, "chat", "code"), chat=(99, 97), code=(99, 99)), NOON, False),
        (plan((1, "chat", "code"), chat=(99, 97), code=(99, 99)), "2026-01-01T11:00:00Z", True),
        (plan((1, "chat", "code"), chat=(85, 80), code=(99, 99)), None, False),
        (plan((2, "chat"), (1, "code"), chat=(60, 95), code=(99, 99)), NOON, True),
        (plan((2, "chat"), (1, "code"), chat=(60, 95), code=(99, 99)), "2026-01-01T12:10:00Z", False),
        (plan((2, "chat"), (1, "code"), chat=(84, 95), code=(99, 99)), None, False),
        (plan((1, "chat"), (1, "code")), None, False),
    ],
    ids=["fewer", "fewer, soon", "fewer, in time", "worse", "better", "better, soon", "hardly", "unasked"],
)
def test_a_plan_is_carried_out_where_it_pays_for_the_moves(found, since, changes):
    before = adopted((1, "chat"), (1, "other"), time=since) if since else None
    now = adopt(before, found, LATER)
    if changes:
        assert now == PlacementStatus(time=LATER, services=place(found, before.services if before else ()))
    else:
        assert now == before


def test_a_plan_that_is_carried_out_already_changes_nothing():
    found = plan((1, "chat", "code"), chat=(10, 99), code=(99, 99))
    before = PlacementStatus(time=NOON, services=place(found, ()))
    assert adopt(before, found, TWO) is before


def test_today_that_cannot_be_estimated_is_left():
    found = plan((2, "chat"), today=2, chat=(None, 99))
    assert adopt(None, found, NOON) is not None
