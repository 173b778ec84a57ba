"""Traffic drawn again from a stretch: of the same kind, and as different as another stretch would be."""

import math
import random
import statistics
from itertools import pairwise

import pytest

from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.sim.workloads.resample import BLOCKS, resample_arrivals

STRETCH = [Arrival(0.5 + number + 0.1 * (number % 7), number + 1, 5) for number in range(200)]
SECONDS = 203.0


def test_as_many_requests_arrive_in_order_and_from_the_start():
    drawn = resample_arrivals(STRETCH, SECONDS, 1)
    times = [each.at for each in drawn]
    assert len(drawn) == len(STRETCH)
    assert times[0] == 0
    assert times == sorted(times)
    assert {each.prompt_tokens for each in drawn} <= {each.prompt_tokens for each in STRETCH}


def test_requests_in_a_row_stay_together_with_the_gaps_between_them():
    recorded = {
        (one.prompt_tokens, other.prompt_tokens): other.at - one.at for one, other in pairwise(STRETCH)
    }
    drawn = list(pairwise(resample_arrivals(STRETCH, SECONDS, 2)))
    together = [(one, other) for one, other in drawn if (one.prompt_tokens, other.prompt_tokens) in recorded]
    assert len(together) >= len(drawn) - 2 * BLOCKS
    for one, other in together:
        gap = recorded[one.prompt_tokens, other.prompt_tokens]
        assert other.at - one.at == pytest.approx(gap)


def test_a_seed_gives_the_same_traffic_and_another_seed_other_traffic():
    assert resample_arrivals(STRETCH, SECONDS, 3) == resample_arrivals(STRETCH, SECONDS, 3)
    assert resample_arrivals(STRETCH, SECONDS, 3) != resample_arrivals(STRETCH, SECONDS, 4)


def test_a_request_drawn_twice_does_not_find_itself_in_the_prefix_cache():
    stretch = [Arrival(float(number), 64, 5, prefix=(0, number), prefix_block=16) for number in range(1, 41)]
    drawn = resample_arrivals(stretch, 41.0, 5)
    assert len({each.prefix for each in drawn}) == len(drawn)
    first = {each.prefix[0] for each in drawn}
    assert 1 < len(first) < 10  # those of a turn begin alike still


def mean_time(arrivals):
    """Mean time in a queue with one server; prompt tokens are microseconds of service."""
    free, total = 0.0, 0.0
    for each in arrivals:
        free = max(free, each.at) + each.prompt_tokens / 1e6
        total += free - each.at
    return total / len(arrivals)


def test_intervals_hold_the_true_mean_where_requests_queue():
    """M/M/1 at load 0.8: the mean time is 5 services."""
    chance, held, runs = random.Random(1), 0, 40
    for run in range(runs):
        at, stretch = 0.0, []
        for _ in range(800):
            stretch.append(Arrival(at, 1 + int(1e6 * chance.expovariate(1)), 1))
            at += chance.expovariate(0.8)
        draws = [mean_time(resample_arrivals(stretch, at, run * 100 + draw)) for draw in range(12)]
        half = 2.201 * statistics.stdev([math.log(each) for each in draws])
        held += abs(math.log(mean_time(stretch) / 5)) <= half
    assert held >= 0.8 * runs
