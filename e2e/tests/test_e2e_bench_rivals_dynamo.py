"""Dynamo's cost by hand-made examples: prefill blocks until the first token, decode blocks until the last."""

from e2e_rivals import Desk

from e2e.bench.rivals.dynamo import ActiveBlocks, KvRouter

BLOCKS = 4  # of 16 tokens in a piece of 64


def test_cached_blocks_are_credited_and_active_ones_are_counted_once():
    desk = Desk(KvRouter)
    ids = (1, 2, 3, 4)
    desk.engines[0].cached[ids] = 4 * BLOCKS
    assert desk.send(*ids) == 0, "0 + 16 against 16 + 16"
    assert desk.send(*ids) == 0, "the blocks are active already: 0 + 16 against 16 + 16"
    assert len(desk.rival.active["0"]) == 4 * BLOCKS
    assert desk.rival.loads["0"].prefill_tokens == 0


def test_load_outweighs_the_cache():
    desk = Desk(KvRouter)
    desk.engines[0].cached[7,] = BLOCKS
    desk.send(7)
    desk.engines[0].cached[1, 2] = 2 * BLOCKS
    assert desk.send(1, 2) == 0, "0 + 4 + 8 against 8 + 8"
    desk.engines[0].cached[5, 6] = 2 * BLOCKS
    assert desk.send(5, 6) == 1, "0 + 12 + 8 against 8 + 8"


def test_prefill_counts_until_the_first_token_and_blocks_until_the_last():
    desk = Desk(KvRouter)
    first = desk.send(1, 2, 3)
    rival, address = desk.rival, str(first)
    assert (rival.loads[address].prefill_tokens, len(rival.active[address])) == (192, 12)
    desk.begin(0)
    assert (rival.loads[address].prefill_tokens, len(rival.active[address])) == (0, 12)
    desk.end(0)
    assert len(rival.active[address]) == 0


def test_a_prompt_like_no_other_has_blocks_of_its_own():
    active = ActiveBlocks()
    active.add([1, 2, 3], 5)
    active.add([1, 2], 0)
    assert (len(active), active.additional([1, 2, 9, 10])) == (8, 2)
    active.remove([1, 2, 3], 5)
    assert (len(active), active.additional([1, 2, 3])) == (2, 1)


def test_equals_are_drawn_by_lot():
    firsts = {Desk(KvRouter, engines=3, seed=seed).send(1) for seed in range(12)}
    assert firsts == {0, 1, 2}
