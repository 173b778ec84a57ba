"""llm-d's rules by hand-made examples: stickiness, load gate, release, weights, turns, LMetric's product."""

import pytest
from e2e_rivals import PIECE, Desk

from e2e.bench.rivals.llm_d import (
    MOST_PENALTY,
    ApproximateIndex,
    LMetric,
    OptimizedBaseline,
    WeightedScorers,
)


def loads(desk):
    return [load.prefill_tokens for load in desk.rival.loads.values()]


def test_a_prompt_goes_where_four_fifths_of_it_are():
    desk = Desk(OptimizedBaseline, engines=3)
    first = desk.send(1, 2, 3, 4)
    assert desk.send(1, 2, 3, 4, 5) == first, "4 of 5 blocks, though others have less in flight"
    assert desk.send(1, 2, 3, 9, 10) != first, "3 of 5: the least loaded"


def test_stickiness_ends_where_the_sticky_engine_is_a_whole_penalty_behind():
    desk = Desk(OptimizedBaseline)
    first = desk.send(1, 2, 3, 4)
    load = desk.rival.loads[str(first)]
    behind = int(MOST_PENALTY * desk.rival.prefill_rate)
    load.prefill_tokens = behind
    assert desk.send(1, 2, 3, 4) == first
    load.prefill_tokens = behind + 5 * PIECE
    desk.rival.loads[str(1 - first)].prefill_tokens = 0
    assert desk.send(1, 2, 3, 4) == 1 - first


def test_the_penalty_is_by_the_rate_of_one_full_chunk():
    assert Desk(OptimizedBaseline).rival.prefill_rate == pytest.approx(1000)


def test_only_uncached_tokens_count_until_the_first_token():
    desk = Desk(OptimizedBaseline)
    first = desk.send(1, 2, 3, 4)
    desk.send(1, 2, 3, 4, 5)
    assert loads(desk)[first] == 4 * PIECE + PIECE
    desk.begin(0)
    assert loads(desk)[first] == PIECE
    desk.end(0)
    assert loads(desk)[first] == PIECE


def test_the_requests_own_uncached_tokens_count():
    desk = Desk(OptimizedBaseline)
    first = desk.send(1, 2)
    assert desk.send(1, 2, 7, 8) == 1 - first, "2 in flight and 2 to compute, against 4 to compute"
    desk.begin(0)
    desk.begin(1)
    third = desk.send(1, 2, 9, 10)
    assert loads(desk)[third] == 2 * PIECE


def test_equals_are_taken_in_turn():
    desk = Desk(OptimizedBaseline, engines=3)
    turns = []
    for number in range(6):
        turns.append(desk.send(pieces=1))
        desk.begin(number)
    assert turns == [0, 1, 2, 0, 1, 2]


def test_the_index_forgets_what_was_longest_unused():
    index = ApproximateIndex({"0": 3, "1": 3})
    index.record("0", [1, 2])
    index.record("1", [1])
    assert index.matches([1, 2, 3]) == {"0": 2, "1": 1}
    index.record("0", [5, 6])
    assert index.matches([1, 2]) == {"0": 1, "1": 1}, "1 was the oldest, but somebody has it still"
    index.record("1", [7, 8, 9])
    assert index.matches([1, 2]) == {"0": 0, "1": 0}, "what nobody has ends the match"


def test_scorers_weigh_prefix_3_queue_2_and_memory_2():
    desk = Desk(WeightedScorers)
    first = desk.send(1, 2, 3, 4)
    desk.report(first, waiting=5, free=1000)
    desk.report(1 - first, waiting=0, free=1000)
    assert desk.send(1, 2, 3, 4) == first, "3 + 0 + 2 against 0 + 2 + 2"
    desk.report(first, waiting=5, free=400)
    assert desk.send(1, 2, 3, 4) == 1 - first, "3 + 0 + 0.8 against 0 + 2 + 2"


def test_scorers_normalise_queues_and_know_nothing_without_metrics():
    desk = Desk(WeightedScorers, engines=3)
    for engine, waiting in enumerate((4, 2, 0)):
        desk.report(engine, waiting=waiting, free=(1000, 1000, 400)[engine])
    assert desk.send(pieces=1) == 1, "0 + 2, 1 + 2, 2 + 0.8"
    silent = Desk(WeightedScorers, engines=2)
    silent.report(1, free=10)
    assert silent.send(pieces=1) == 1


def test_lmetric_multiplies_uncached_tokens_by_requests():
    desk = Desk(LMetric)
    ids = (1, 2, 3, 4)
    desk.engines[0].cached[ids] = 8  # half of its 16 blocks
    assert desk.send(*ids) == 0, "128 x 1 against 256 x 1"
    assert desk.send(*ids) == 1, "128 x 2 against 256 x 1: equal, the second one's turn"
    assert desk.send(*ids) == 0, "128 x 2 against 256 x 2"
    desk.end(0)
    desk.end(2)
    assert desk.send(*ids) == 0
