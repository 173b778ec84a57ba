"""The study of a day: services in a pool that the operator's own code plans and moves."""

import pytest

from e2e.bench.replacement import study
from e2e.bench.replacement.day_traffic import DAY, DayTraffic, busiest_hour, draw_services
from e2e.bench.replacement.replayed_pool import (
    HOUR,
    STEP,
    Setting,
    Tally,
    replay_adaptive,
    replay_auto,
    replay_dedicated,
    replay_planned,
)
from headrace_operator.placement.problem import Request


def service(name, *hours):
    """A service that is asked once a minute in these hours."""
    moments = [hour * HOUR + 60.0 * minute for hour in hours for minute in range(60)]
    return DayTraffic(name, "llama-3-8b", tuple(Request(at, 100, 10) for at in moments))


@pytest.fixture
def setting():
    """Two services that one GPU would do for, on two."""
    return Setting([service(name, 23, 24, 25) for name in ("a", "b")], gpus=2, hours=2)


def test_services_that_never_move_have_all_gpus_all_day(setting):
    tally = replay_dedicated(setting)
    assert (tally.gpu_seconds, tally.moves, tally.refused) == (2 * 2 * HOUR, 0, 0)
    assert tally.met == tally.asked == {"a": 120, "b": 120}


def test_a_plan_of_the_hour_before_saves_what_nobody_needs(setting):
    tally = replay_planned(setting, DAY - HOUR)
    assert tally.moves == 2
    assert tally.gpu_seconds == 2 * HOUR


def test_who_was_asked_nothing_is_not_planned_for(setting):
    assert replay_planned(setting, 0).moves == 0


def test_requests_that_come_while_a_service_has_no_engine_are_refused(setting):
    tally = replay_auto(setting, HOUR)
    assert tally.refused == 4  # of 200 s: both GPUs are taken, so the first to move has to end first
    assert sum(tally.met.values()) == 240 - tally.refused


class ForeseenPool:
    """A pool of which each plan expects all requests in time; `shares` are, in the hours of the day."""

    def __init__(self, *shares):
        self.shares = shares
        self.tally = Tally()
        self.plans = []  # minutes since the day began

    def plan(self, start, end, now):
        assert end == now
        self.plans.append(((now - DAY) // 60, (end - start) // 60))
        return 1.0

    def move(self):
        return {}

    def serve(self, start, _):
        self.tally.asked["a"] += 100
        self.tally.met["a"] += 100 * self.shares[(start - DAY) // HOUR]


@pytest.mark.parametrize(
    ("shares", "plans"),
    [
        ((1, 1, 1), [(0, 30), (30, 60), (90, 60), (150, 60)]),
        (
            (0, 0, 1),
            [(0, 30), (30, 10), *((start, 10) for start in range(40, 130, 10)), (130, 20), (150, 40)],
        ),
    ],
    ids=["as expected: longer", "otherwise: shorter"],
)
def test_intervals_adapt_to_what_came_of_what_was_expected(monkeypatch, shares, plans):
    pool = ForeseenPool(*shares)
    monkeypatch.setattr(Setting, "begin", lambda _: pool)
    tally = replay_adaptive(Setting([], gpus=2, hours=3))
    assert pool.plans[: len(plans)] == plans
    assert tally.asked["a"] == 100 * 3 * HOUR / STEP


def test_drawn_services_are_asked_as_much_as_they_should():
    services = draw_services(2, 0.02, 1, changing=False)
    asked = sum(len(each.requests) for each in services)
    assert 0.8 < asked / (0.02 * 2 * DAY) < 1.2
    assert len({each.name for each in services}) == 2


def test_the_busiest_hour_is_that_of_all_services_together():
    assert busiest_hour([service("a", 2, 5), service("b", 5, 7)], 0, DAY) == 5 * HOUR


def test_services_that_change_have_an_hour_that_is_far_busier_than_the_mean():
    for each in draw_services(2, 0.2, 1, changing=True):
        busiest = busiest_hour([each], DAY, 2 * DAY)
        second_day = len(each.between(DAY, 2 * DAY))
        assert len(each.between(busiest, busiest + HOUR)) > 2 * second_day / 24


def test_a_service_that_is_asked_nothing_counts_for_nothing(monkeypatch):
    idle = DayTraffic("idle", "llama-3-8b", (Request(DAY + 2 * HOUR, 100, 10),))
    monkeypatch.setattr(study, "draw_services", lambda *_, **__: [service("busy", 24), idle])
    figures = study.replay_day(study.QUICK[0])
    assert figures["in_time_percent"] == figures["least_in_time_percent"] == 100
