"""Plans are scored by what their services' requests come to."""

import pytest
from op_placement import nodes, service

from headrace_engine.contracts import Slo
from headrace_operator.placement.problem import Group, Request, make_plan
from headrace_operator.placement.score import (
    FitsNowhereError,
    Scorer,
    Standing,
    meets,
    sum_up,
)
from headrace_operator.placement.shared_group import Answered

NODES = nodes()


def plan(*groups):
    return make_plan([Group(*group) for group in groups])


def test_a_request_alone_on_the_fewest_gpus_has_a_normalised_latency_of_about_one():
    scorer = Scorer([service(rate=0.1)], NODES)
    [standing] = scorer.standings(plan((1, (0,))))
    assert 1.0 < standing.mean_latency < 1.2
    assert (standing.met, scorer.fewest) == (standing.requests, [1])
    [faster] = scorer.standings(plan((2, (0,))))
    assert faster.mean_latency < standing.mean_latency


def test_engines_of_one_service_have_equal_parts_of_its_requests():
    scorer = Scorer([service(rate=20.0, requests=101)], NODES)
    [one] = scorer.standings(plan((1, (0,)), (1, ())))
    [two] = scorer.standings(plan((1, (0,)), (1, (0,))))
    assert two.latency < one.latency
    assert (one.requests, two.requests) == (101, 101)


def test_a_service_without_engine_is_worse_than_any_with_one():
    scorer = Scorer([service(), service("code", rate=50.0)], NODES)
    missing = scorer.standings(plan((1, (0,)), (1, ())))[1]
    assert (missing.met, missing.engines) == (0, 0)
    crowded = plan((1, (0, 1)), (1, ()))
    assert scorer.score(crowded) < scorer.score(plan((1, (0,)), (1, ())))


def test_a_group_that_many_plans_have_is_estimated_once():
    scorer = Scorer([service(), service("code")], NODES)
    scorer.score(plan((1, (0,)), (1, (1,))))
    scorer.score(plan((1, (0,)), (1, (0, 1))))
    before = scorer.estimated
    scorer.score(plan((1, (0,)), (1, (1,))))
    assert scorer.estimated == before


def test_what_was_estimated_is_known_on_other_nodes():
    scorer = Scorer([service(), service("code")], NODES)
    shared = plan((1, (0, 1)))
    score = scorer.score(shared)
    other = scorer.on(nodes(count=3))
    before = other.estimated
    assert (other.score(shared), other.estimated) == (score, before)
    assert (scorer.nodes, other.nodes) == (NODES, nodes(count=3))


def test_other_nodes_have_room_for_everybody_or_it_is_said_who_has_none():
    scorer = Scorer([service("large", model="llama-3-70b")], NODES)
    with pytest.raises(FitsNowhereError, match="large: fits no node"):
        scorer.on(nodes(gpus=1))


def test_a_service_that_nobody_asks_falls_short_of_nothing():
    scorer = Scorer([service(), service("idle", requests=0)], NODES)
    alone = plan((1, (0,)), (1, (1,)))
    [_, idle] = scorer.standings(alone)
    assert (idle.mean_latency, idle.attainment, idle.engines) == (0.0, 1.0, 1)
    assert scorer.score(alone) < scorer.score(plan((1, (0,)), (1, ())))
    assert scorer.score(plan((1, (0, 1)))).latency == pytest.approx(scorer.score(alone).latency)


def test_a_plan_that_does_not_fit_is_refused():
    scorer = Scorer([service(model="qwen3-32b"), service(model="qwen3-32b")], NODES)
    assert not scorer.fits(Group(1, (0, 1)))
    with pytest.raises(ValueError, match="does not fit"):
        scorer.score(plan((1, (0, 1))))


def test_a_service_that_no_node_has_room_for_is_named():
    with pytest.raises(FitsNowhereError, match=r"^big: fits no node: on 1 GPUs.*\(sizes .*: 2, 4\)"):
        Scorer([service("big", model="llama-3-70b")], nodes(gpus=1))


def test_who_falls_short_counts_before_latency():
    short = sum_up([Standing(100, 80, 90.0, engines=1), Standing(100, 100, 90.0, engines=1)])
    slow = sum_up([Standing(100, 95, 900.0, engines=1), Standing(100, 90, 900.0, engines=1)])
    assert short == (0, pytest.approx(10.0), 0.9)
    assert slow == (0, 0.0, 9.0)
    assert slow < short < sum_up([Standing(100, 100, 90.0, engines=1), Standing(100)])


@pytest.mark.parametrize(
    ("slo", "met"),
    [
        (Slo(), True),
        (Slo(ttft_ms=500, tpot_ms=100, e2e_ms=1400), True),
        (Slo(ttft_ms=499), False),
        (Slo(tpot_ms=99), False),
        (Slo(e2e_ms=1399), False),
        (Slo(e2e_scale_percent=200), True),
        (Slo(e2e_scale_percent=199), False),
    ],
)
def test_all_targets_that_there_are_must_be_met(slo, met):
    assert meets(Answered(ttft=0.5, e2e=1.4), Request(0.0, 10, 10), slo, alone=0.7) is met
