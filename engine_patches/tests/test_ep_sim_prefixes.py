"""Which blocks of two requests get the same hash, without vLLM."""

from types import SimpleNamespace

import pytest

from headrace_engine.sim.prefixes import PrefixHashes
from headrace_engine.sim.workloads.arrival import Arrival


def hashes(prefixes, arrival, tokens=None):
    request = SimpleNamespace(block_hashes=[], _all_token_ids=[1] * (tokens or arrival.prompt_tokens))
    return prefixes.hasher(arrival)(request)


def shared(first, second):
    return sum(one == other for one, other in zip(first, second, strict=False))


@pytest.mark.parametrize(
    ("span", "blocks"),
    [(512, 64), (16, 2), (40, 5), (8, 1), (24, 3)],  # 2 x span tokens in blocks of 16
)
def test_blocks_within_the_common_prefix_agree(span, blocks):
    prefixes = PrefixHashes(16)
    first = hashes(prefixes, Arrival(0, 4000, 1, tuple(range(4000 // span)), span))
    second = hashes(prefixes, Arrival(0, 4000, 1, (0, 1, *range(9000, 9000 + 4000 // span - 2)), span))
    assert len(first) == 250
    assert shared(first, second) == blocks
    assert first[:blocks] == second[:blocks]


def test_an_id_counts_only_behind_the_same_ids():
    prefixes = PrefixHashes(16)
    first = hashes(prefixes, Arrival(0, 64, 1, (1, 2), 32))
    second = hashes(prefixes, Arrival(0, 64, 1, (3, 2), 32))
    assert shared(first, second) == 0


def test_blocks_with_output_and_without_ids_are_a_requests_own():
    prefixes = PrefixHashes(16)
    arrival = Arrival(0, 40, 60, (1,), 64)
    first, second = hashes(prefixes, arrival, 100), hashes(prefixes, arrival, 100)
    assert len(first) == 6
    assert [one == other for one, other in zip(first, second, strict=True)] == [True, True] + [False] * 4
    bare = Arrival(0, 64, 1)
    assert not set(hashes(prefixes, bare)) & set(hashes(prefixes, bare))


def test_hashes_come_as_blocks_fill_up():
    prefixes = PrefixHashes(16)
    hasher = prefixes.hasher(Arrival(0, 20, 30))
    request = SimpleNamespace(block_hashes=[], _all_token_ids=[1] * 20)
    request.block_hashes += hasher(request)
    assert len(request.block_hashes) == 1
    assert hasher(request) == []
    request._all_token_ids += [1] * 12
    request.block_hashes += hasher(request)
    assert len(set(request.block_hashes)) == 2


def test_shared_hashes_are_those_that_a_request_before_had():
    prefixes = PrefixHashes(16)
    first = hashes(prefixes, Arrival(0, 200, 1, (1, 2, 3, 4), 48))
    assert list(prefixes.shared_hashes(Arrival(0, 200, 1, (1, 2, 9, 4), 48))) == first[:6]
    assert list(prefixes.shared_hashes(Arrival(0, 70, 1, (1, 2), 48))) == first[:4], "whole blocks only"
    assert list(prefixes.shared_hashes(Arrival(0, 200, 1, (5, 2), 48))) == []
    assert list(prefixes.shared_hashes(Arrival(0, 200, 1))) == []
