"""Policies on the real scheduler where prompts share their beginning: none is behind order of arrival."""

import random
from dataclasses import replace
from statistics import fmean

import ep_sim
import pytest
from ep_adapter_trial import MARKS

from headrace_engine.contracts import PolicyDocument
from headrace_engine.policies import registry
from headrace_engine.sim.workloads.arrival import Arrival

pytestmark = MARKS

BEGINNING = 60  # blocks
SHORTEST_STEP = 0.005  # seconds
POLICIES = pytest.mark.parametrize("policy", registry.policy_names())


def served(arrivals, policy, **changed):
    from headrace_engine.sim.run import simulate

    settings = ep_sim.settings(prefix_caching=True, **changed)
    document = None if policy is None else PolicyDocument(policy)
    return simulate(arrivals, settings, ep_sim.Line(), document)


def alike(count, per_second, own, seed):
    """Prompts that begin with the same `BEGINNING`, and have up to `own` tokens besides."""
    chance, at, arrivals = random.Random(seed), 0.0, []
    for _ in range(count):
        at += chance.expovariate(per_second)
        tokens = BEGINNING * ep_sim.BLOCK + chance.randint(1, own)
        arrivals.append(Arrival(at, tokens, chance.randint(2, 60), tuple(range(BEGINNING)), ep_sim.BLOCK))
    return arrivals


@POLICIES
@pytest.mark.parametrize("seed", range(3))
def test_with_everything_shared_no_policy_is_behind_order_of_arrival(policy, seed):
    """Slots and steps bind at this load, blocks as well with 100 of them."""
    for per_second, blocks in ((30.0, 256), (60.0, 256), (30.0, 100)):
        arrivals = alike(150, per_second, ep_sim.BLOCK, seed)
        ours, stock = (served(arrivals, each, num_blocks=blocks) for each in (policy, None))
        ttft, e2e = (
            [fmean(getattr(each, kind) for each in run.outcomes) for run in (ours, stock)]
            for kind in ("ttft", "e2e")
        )
        assert ttft[0] <= 1.05 * ttft[1] + SHORTEST_STEP
        assert e2e[0] <= 1.05 * e2e[1]


@POLICIES
def test_nobody_waits_before_a_cache_that_is_mostly_empty(policy):
    """All that run need twice the cache if each is charged for its whole prompt."""
    arrivals = alike(80, 40.0, 100, 5)
    run = served(arrivals, policy, num_blocks=256)
    together = max(
        sum(other.started_at <= each.started_at < other.finished_at for other in run.outcomes)
        for each in run.outcomes
    )
    assert together * BEGINNING > 2 * 256
    assert run.kv_use < 0.6
    assert run.preemptions == 0
    assert max(each.wait for each in run.outcomes) <= 0.062  # two steps


@POLICIES
def test_beginnings_that_come_and_go_lose_nobody(policy):
    """More than the cache holds, so that some are evicted while requests wait for them."""
    chance, arrivals = random.Random(7), []
    for family in range(6):
        for arrival in alike(25, 5.0, 200, family):
            ids = tuple(1000 * family + number for number in arrival.prefix)
            arrivals.append(replace(arrival, at=arrival.at + chance.random(), prefix=ids))
    arrivals.sort(key=lambda each: each.at)
    run = served(arrivals, policy)
    assert all(each.finished_at is not None for each in run.outcomes)
    assert any(each.cached_tokens for each in run.outcomes)
    assert any(not each.cached_tokens for each in run.outcomes[10:])
