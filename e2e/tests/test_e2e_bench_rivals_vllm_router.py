"""vllm-router's cache_aware by hand-made examples: its thresholds, and its tree."""

import pytest
from e2e_rivals import Desk
from hypothesis import given
from hypothesis import strategies as st

from e2e.bench.rivals import vllm_router
from e2e.bench.rivals.radix_tree import RadixTree, common_length
from e2e.bench.rivals.vllm_router import CacheAware

TEXTS = st.text(alphabet="ab", max_size=12).map(str.encode)


def fill(desk, *counts):
    for address, count in enumerate(counts):
        desk.rival.loads[str(address)].requests = count


def test_more_than_the_threshold_must_match():
    desk = Desk(CacheAware, engines=3)
    fill(desk, 5, 1, 2)
    assert desk.send(1, 2, 3, 4) == 1, "nothing matches: the fewest requests"
    fill(desk, 0, 9, 9)
    assert desk.send(1, 2, 3, 4, pieces=6) == 1, "4 of 10 match"
    assert desk.send(1, 2, 3, pieces=7) == 0, "3 of 10: not more than 0.3"


@pytest.mark.parametrize(
    ("busy", "idle", "balanced"),
    [(64, 0, True), (65, 0, False), (200, 135, True), (195, 130, True), (196, 130, False)],
)
def test_load_decides_where_both_thresholds_are_passed(busy, idle, balanced):
    desk = Desk(CacheAware)
    assert desk.send(1, 2, 3) == 0
    fill(desk, busy, idle)
    assert desk.send(1, 2, 3) == (0 if balanced else 1)


def test_what_load_decided_is_learned_too():
    desk = Desk(CacheAware)
    fill(desk, 100, 0)
    assert desk.send(1, 2, 3) == 1
    fill(desk, 0, 1)
    assert desk.send(1, 2, 3) == 1


def test_of_equals_the_first():
    assert {Desk(CacheAware, engines=3, seed=seed).send(pieces=1) for seed in range(5)} == {0}


def test_texts_are_evicted_at_intervals(monkeypatch):
    monkeypatch.setattr(vllm_router, "MOST_CHARACTERS", 300)
    desk = Desk(CacheAware)
    desk.send(1, 2, 3)
    desk.send(1, 2, 3, now=vllm_router.EVICTION_INTERVAL - 1)
    assert desk.rival.tree.sizes["0"] == 768
    fill(desk, 3, 0)
    assert desk.send(1, 2, 3, now=vllm_router.EVICTION_INTERVAL) == 1


def test_a_match_is_the_makers_until_he_is_evicted():
    tree = RadixTree()
    tree.insert(b"hello world", "a")
    tree.insert(b"hello there", "b")
    assert tree.match(b"hello worms") == ("a", 9)
    assert tree.match(b"hello, you") == ("a", 5)
    assert tree.match(b"hello them") == ("b", 9)
    assert tree.sizes == {"a": 11, "b": 11}
    tree.remove("a")
    assert tree.match(b"hello world") == ("b", 6)
    assert tree.sizes == {"b": 11}


def test_eviction_takes_the_longest_unused_ends_of_those_who_have_too_much():
    tree = RadixTree()
    for text in (b"aaaa", b"aabb", b"cccc"):
        tree.insert(text, "a")
    tree.insert(b"dddddd", "b")
    tree.insert(b"aaaa", "a")
    tree.evict(8)
    assert tree.sizes == {"a": 8, "b": 6}
    assert tree.match(b"aabb") == ("a", 2), "its end was unused for longest"
    tree.evict(4)
    assert tree.sizes == {"a": 4, "b": 4} or tree.sizes["b"] == 0
    assert tree.match(b"cccc")[1] == 0


@given(st.lists(st.tuples(TEXTS, st.sampled_from("xyz")), max_size=20), TEXTS, st.integers(0, 20))
def test_the_tree_knows_the_longest_beginning_and_its_sizes_are_of_what_it_holds(texts, probe, most):
    tree = RadixTree()
    for text, owner in texts:
        tree.insert(text, owner)
    owner, matched = tree.match(probe)
    longest = max((common_length(probe, 0, text) for text, _ in texts), default=0)
    assert matched == longest
    assert not matched or any(text.startswith(probe[:matched]) for text, who in texts if who == owner)
    for who in {owner for _, owner in texts}:
        mine = {text for text, owner in texts if owner == who}
        assert tree.sizes[who] == len({text[:end] for text in mine for end in range(1, len(text) + 1)})
    tree.evict(most)
    assert all(size <= most for size in tree.sizes.values())


@given(TEXTS, TEXTS, st.integers(0, 5))
def test_common_length(text, piece, start):
    rest = text[start:]
    length = common_length(text, min(start, len(text)), piece)
    assert rest[:length] == piece[:length]
    assert length == min(len(rest), len(piece)) or rest[length] != piece[length]
