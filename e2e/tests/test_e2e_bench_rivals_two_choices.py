"""Power of two choices on tokens: of a pair always the one with fewer, of three never the fullest."""

from e2e_rivals import Desk

from e2e.bench.rivals.two_choices import PowerOfTwoTokens


def test_the_less_loaded_of_two():
    desk = Desk(PowerOfTwoTokens)
    long = desk.send(pieces=10)
    assert [desk.send(pieces=1) for _ in range(5)] == [1 - long] * 5, "by tokens, not requests"
    desk.begin(0)
    assert desk.send(pieces=1) == long


def test_the_fullest_of_three_is_never_chosen_and_lots_decide_among_the_others():
    desk = Desk(PowerOfTwoTokens, engines=3)
    desk.rival.loads["2"].prefill_tokens = 10_000
    chosen = set()
    for number in range(30):
        chosen.add(desk.send(pieces=1))
        desk.begin(number)
    assert chosen == {0, 1}
