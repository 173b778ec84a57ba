"""The study of placement: its instances, all plans, and what is compared."""

from math import comb

import pytest

from e2e.bench.placement.exhaustive import every_plan, find_best
from e2e.bench.placement.instances import Instance, draw
from e2e.bench.placement.study import LARGE, SMALL, compare, reach
from headrace_operator.placement.problem import Group, pack
from headrace_operator.placement.score import Score, Scorer
from headrace_operator.placement.search import Found, search

FOUR = Instance(1, 4, 3, 4.0, requests=100, seed=0)


@pytest.fixture(scope="module")
def drawn():
    return draw(FOUR)


@pytest.fixture
def scorer(drawn):
    return Scorer(*drawn)


def test_an_instance_is_the_same_whenever_it_is_drawn(drawn):
    services, nodes = drawn
    again, _ = draw(FOUR)
    assert [each.requests for each in services] == [each.requests for each in again]
    assert (len(services), nodes.total_gpus) == (3, 4)
    assert all(len(each.requests) >= 20 for each in services)


def test_all_plans_are_tried_once_and_can_be(scorer):
    plans = list(every_plan(scorer))
    assert len(plans) == len(set(plans)) > comb(4, 3)
    assert all(sum(group.gpus for group in plan) == 4 for plan in plans)
    assert all(pack(plan, scorer.nodes) is not None for plan in plans)
    assert all(scorer.fits(group) for plan in plans for group in plan if group.members)


def test_no_plan_is_better_than_the_best(scorer):
    best = find_best(scorer)
    assert search(scorer, lambda: False).score >= best.score
    assert compare(FOUR)["of_exhaustive"] >= 0.98


@pytest.mark.parametrize(
    ("score", "part"),
    [
        (Score(0, 0.0, 1.0), 1.0),
        (Score(0, 0.0, 1.25), 0.8),
        (Score(0, 50.0, 0.5), 0.5),
        (Score(1, 0.0, 1.0), 0.0),
    ],
)
def test_the_part_that_is_reached_is_of_services_then_requests_then_speed(scorer, score, part):
    requests = sum(len(each.requests) for each in scorer.services)
    scaled = score._replace(short=score.short / 100 * requests)
    assert reach(Found((Group(1, (0,)),), scaled), Score(0, 0.0, 1.0), scorer) == pytest.approx(part)


def test_small_instances_have_at_most_eight_gpus_and_four_services():
    assert all(each.total_gpus <= 8 and each.services <= 4 for each in SMALL)
    assert {key: (each.total_gpus, each.services) for key, (each, _) in LARGE.items()} == {
        "32_16": (32, 16),
        "64_32": (64, 32),
    }
