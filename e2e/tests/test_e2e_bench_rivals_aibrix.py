"""AIBrix's rules by hand-made examples: best match within mean + deviation, the load gate, least requests."""

import pytest
from e2e_rivals import Desk

from e2e.bench.rivals.aibrix import PrefixCache, PrefixTable, imbalanced


def fill(desk, counts):
    for address, count in enumerate(counts):
        desk.rival.loads[str(address)].requests = count


def sent_to_0(engines=4):
    desk = Desk(PrefixCache, engines=engines)
    fill(desk, [0] + [1] * (engines - 1))
    assert desk.send(1, 2, 3) == 0
    return desk


def test_the_best_match_wins_over_fewer_requests():
    desk = sent_to_0()
    fill(desk, [3, 2, 2, 3])  # up to 3.1 fit
    assert desk.send(1, 2, 3, 4) == 0
    fill(desk, [3, 2, 2, 3])
    assert desk.send(1, pieces=2) == 0, "a part is enough, if nobody has more"


def test_a_match_that_is_too_busy_is_passed_over():
    desk = sent_to_0()
    fill(desk, [4, 2, 3, 2])  # up to 3.7 fit
    assert desk.send(1, 2, 3) in (1, 3)


def test_of_equal_matches_the_one_with_fewer_requests():
    desk = sent_to_0()
    fill(desk, [4, 2, 3, 3])
    assert desk.send(1, 2, 3) == 1
    fill(desk, [2, 3, 2, 3])
    assert desk.send(1, 2, 3) == 0
    fill(desk, [3, 2, 2, 3])
    assert desk.send(1, 2, 3) == 1


def test_nothing_matches_so_the_fewest_requests_win_and_equals_are_drawn_by_lot():
    desk = Desk(PrefixCache, engines=3)
    fill(desk, [2, 1, 2])
    assert desk.send(pieces=3) == 1
    firsts = {Desk(PrefixCache, engines=3, seed=seed).send(pieces=1) for seed in range(12)}
    assert firsts == {0, 1, 2}


def test_where_one_stands_out_only_the_least_busy_are_matched():
    desk = sent_to_0()
    fill(desk, [2, 20, 1, 1])
    assert desk.send(1, 2, 3) in (2, 3)
    fill(desk, [2, 5, 1, 1])
    assert desk.send(1, 2, 3, pieces=9) != 1


@pytest.mark.parametrize(
    ("counts", "said"), [([0, 0, 5], False), ([0, 0, 9], True), ([10, 10, 18], False), ([0, 8], False)]
)
def test_who_stands_out(counts, said):
    assert imbalanced({str(number): count for number, count in enumerate(counts)}) is said


def test_the_table_matches_from_the_start_and_forgets_what_was_sent_longest_ago():
    table = PrefixTable(most=4)
    table.add([1, 2, 3], "0")
    table.add([1, 2], "1")
    assert table.match([1, 2, 3, 4], ["0", "1", "2"]) == {"0": 75, "1": 50}
    assert table.match([9, 2, 3], ["0", "1"]) == {}
    table.add([7, 8], "2")
    assert table.match([1, 2, 3], ["0"]) == {"0": 66}, "3 was not sent lately"
