"""The simulator's pool of KV blocks does what vLLM's does: same blocks, same hits, same order of eviction."""

import random
from math import inf
from types import SimpleNamespace

import pytest
from ep_adapter_trial import BASES, MARKS
from ep_chaos import chaos
from ep_sim import BLOCK, Line, load, settings

from headrace_engine.contracts import PolicyDocument
from headrace_engine.sim.workloads.arrival import Arrival

pytestmark = MARKS
CHAINS = 4  # of hashes; two requests with the same one have the same tokens


def state(pool):
    """All that a pool remembers, in plain values."""
    free, block = [], pool.free_block_queue.fake_free_list_head.next_free_block
    while block is not pool.free_block_queue.fake_free_list_tail:
        free.append(block.block_id)
        block = block.next_free_block
    found = {
        key: list(blocks) if isinstance(blocks, dict) else [blocks.block_id]
        for key, blocks in pool.cached_block_hash_to_block._cache.items()
    }
    held = [(each.ref_cnt, each.block_hash, each.block_hash_num_tokens) for each in pool.blocks]
    return free, pool.get_num_free_blocks(), found, held, pool.cached_block_hashes_by_block


class Pools:
    """vLLM's pool and ours, told the same; what they give is the same."""

    def __init__(self, blocks, caching):
        from vllm.v1.core.block_pool import BlockPool

        from headrace_engine.sim.block_pool import QuickBlockPool

        self.pools = [kind(blocks, caching, BLOCK) for kind in (BlockPool, QuickBlockPool)]
        self.caching = caching
        self.tables = {}  # name → hashes, cached blocks, blocks in either pool

    def start(self, name, rng):
        chain, length = rng.randrange(CHAINS), rng.randrange(1, 8)
        hashes = [b"%d %d" % (chain, place) for place in range(length)]
        read, tables = hashes if rng.random() < 0.5 else [], []
        for pool in self.pools:
            table = []
            for block_hash in read:
                hit = pool.get_cached_block(block_hash, [0])
                if hit is None:
                    break
                table.extend(hit)
            pool.touch(table)
            tables.append(table)
        assert len({len(table) for table in tables}) == 1
        self.tables[name] = [hashes, len(tables[0]), tables]

    def grow(self, name):
        hashes, cached, tables = self.tables[name]
        missing = len(hashes) - len(tables[0])
        if missing > self.pools[0].get_num_free_blocks():
            for pool in self.pools:
                with pytest.raises(ValueError, match="free blocks"):
                    pool.get_new_blocks(pool.get_num_free_blocks() + 1)
            return
        request = SimpleNamespace(block_hashes=hashes)
        for pool, table in zip(self.pools, tables, strict=True):
            table.extend(pool.get_new_blocks(missing))
            if self.caching:
                pool.cache_full_blocks(request, table, cached, len(hashes), BLOCK, 0)
        self.tables[name][1] = len(hashes)

    def end(self, name):
        for pool, table in zip(self.pools, self.tables.pop(name)[2], strict=True):
            pool.free_blocks(reversed(table))


@pytest.mark.parametrize("caching", [False, True], ids=["uncached", "cached"])
@pytest.mark.parametrize("seed", range(5))
def test_blocks_go_the_same_ways(seed, caching):
    rng, both, several = random.Random(seed), Pools(40, caching), False
    for number in range(2000):
        names = list(both.tables)
        if names and rng.random() < 0.4:
            both.end(rng.choice(names))
        elif names and rng.random() < 0.6:
            both.grow(rng.choice(names))
        else:
            both.start(number, rng)
        vllms, ours = map(state, both.pools)
        assert ours == vllms
        several |= any(len(blocks) > 1 for blocks in vllms[2].values())
    assert several == caching


def busy():
    """Prompts that begin alike, prompts that are all alike, and prompts of their own."""
    same = [Arrival(0.05 * number, 64, 40, (1, 2, 3, 4), 16) for number in range(1, 9)]
    return sorted(load(30) + same, key=lambda arrival: arrival.at)


def cached_blocks(engine):
    """By request: how many of its blocks vLLM has entered into the cache."""
    (table,) = engine.scheduler.kv_cache_manager.coordinator.single_type_managers
    return table.num_cached_block


@BASES
@pytest.mark.parametrize("caching", [False, True], ids=["uncached", "cached"])
@pytest.mark.parametrize("policy", ["stock", "larry", "chaos"])
def test_an_engines_blocks_are_the_same_after_every_step(asynchronous, caching, policy):
    from headrace_engine.sim.engine import SimulatedEngine

    chosen = settings(async_scheduling=asynchronous, prefix_caching=caching, num_blocks=160)
    policies = {"stock": None, "larry": PolicyDocument("LARRY"), "chaos": lambda limits: chaos(1)[0]}
    quick, slow = (SimulatedEngine(chosen, Line(), policies[policy], quick=each) for each in (True, False))
    arrivals = [*busy(), Arrival(inf, 1, 1)]
    for arrival in arrivals:
        while quick.next_event_at < min(arrival.at, inf):
            assert quick.next_event_at == slow.next_event_at
            quick.advance()
            slow.advance()
            assert cached_blocks(quick) == cached_blocks(slow)
            assert state(quick._pool) == state(slow._pool)
        if arrival.at < inf:
            for each in (quick, slow):
                each.add(arrival, arrival.at)
    assert quick.outcomes == slow.outcomes
    assert quick.preemptions
    assert not any(outcome.lost for outcome in quick.outcomes)
