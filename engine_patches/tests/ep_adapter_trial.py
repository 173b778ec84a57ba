"""An engine on a virtual clock, and a load for it; for the adapter's tests."""

import copy
import random

import pytest

from headrace_engine.contracts import PolicyDocument

MARKS = [
    pytest.mark.vllm,
    pytest.mark.timeout(600),  # importing vLLM can take minutes on a slow, busy machine
    pytest.mark.filterwarnings("default"),  # vLLM's and torch's own
    pytest.mark.usefixtures("quiet_vllm"),
]
BASES = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


class Trial:
    """One engine with a KV cache that is too small for its load."""

    def __init__(self, asynchronous, document=None, blocks=256, caching=False):
        from headrace_engine.sim.clock import MemoryLink, VirtualClock
        from headrace_engine.sim.loop import VirtualEngine
        from headrace_engine.sim.settings import EngineSettings
        from headrace_engine.sim.vllm_objects import make_scheduler

        clock = VirtualClock()
        self.link = None if document is None else MemoryLink(clock, document=document)
        settings = EngineSettings(
            num_blocks=blocks,
            max_num_seqs=32,
            max_num_batched_tokens=512,
            async_scheduling=asynchronous,
            prefix_caching=caching,
        )
        self.scheduler = make_scheduler(settings, self.link)
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.free_at_first = self.pool.get_num_free_blocks()
        self.engine = VirtualEngine(self.scheduler, clock, depth=2 if asynchronous else 1)

    def force(self, make):
        """Put a policy in force that no document can name."""
        from headrace_engine.adapter.control_link import Staged

        self.link.staged = Staged(PolicyDocument("FCFS").sealed(), make)

    def run(self, requests):
        self.engine.run(requests)
        self.nothing_is_lost(requests)
        return self

    def nothing_is_lost(self, requests):
        wanted = {request.request_id: request.max_tokens for request in requests}
        assert {name: len(tokens) for name, tokens in self.engine.tokens.items()} == wanted
        assert set(self.engine.finished) == set(wanted)
        assert self.pool.get_num_free_blocks() == self.free_at_first
        assert not self.scheduler.requests
        assert len(self.scheduler.waiting) == 0

    @property
    def course(self):
        return self.engine.steps, self.engine.preemptions, self.engine.finished


def configured(monkeypatch, change):
    """Schedulers made from now on have a configuration of vLLM's that `change` has been at."""
    from headrace_engine.sim import vllm_objects

    shared = vllm_objects._shared

    def changed(settings):
        found = copy.copy(shared(settings))
        config = copy.copy(found.config)
        change(config)
        object.__setattr__(found, "config", config)
        return found

    monkeypatch.setattr(vllm_objects, "_shared", changed)


def sharing(count=80, per_second=20.0, seed=3, *, alone=False):
    """A load with hashes for the prefix cache: about half of the prompts begin like others, or none."""
    from dataclasses import replace

    import ep_sim

    from headrace_engine.sim.clock import START
    from headrace_engine.sim.prefixes import PrefixHashes
    from headrace_engine.sim.vllm_objects import make_request

    hashes = PrefixHashes(ep_sim.BLOCK)
    return [
        make_request(
            str(number),
            arrival.prompt_tokens,
            arrival.output_tokens,
            START + arrival.at,
            block_hasher=hashes.hasher(replace(arrival, prefix=()) if alone else arrival),
        )
        for number, arrival in enumerate(ep_sim.load(count, per_second, seed))
    ]


def load(count=80, per_second=20, seed=3):
    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    rng, at, requests = random.Random(seed), START, []
    for number in range(count):
        at += rng.expovariate(per_second)
        requests.append(make_request(str(number), rng.randrange(8, 900), rng.randrange(2, 200), at))
    return requests


def long_tailed(count=400, per_second=20, seed=3):
    """Every twentieth output is forty times as long as the others."""
    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    rng, at, requests = random.Random(seed), START, []
    for number in range(count):
        at += rng.expovariate(per_second)
        output = rng.randrange(10, 50) * (40 if number % 20 == 0 else 1)
        requests.append(make_request(str(number), rng.randrange(50, 200), output, at))
    return requests


def layered(monkeypatch, asynchronous, document, *kinds, blocks=200, caching=False):
    """An engine with a group of layers of each kind: full attention, a sliding window of 128, a state."""
    import torch
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        MambaSpec,
        SlidingWindowSpec,
    )

    from headrace_engine.sim import vllm_objects

    layer = {"block_size": 16, "num_kv_heads": 8, "head_size": 128, "dtype": torch.bfloat16}
    state = {"block_size": 16, "shapes": ((16384,),), "dtypes": (torch.float32,), "mamba_cache_mode": "align"}
    specs = {
        "full": FullAttentionSpec(**layer),
        "window": SlidingWindowSpec(**layer, sliding_window=128),
        "state": MambaSpec(**state),
    }
    groups = [KVCacheGroupSpec([str(n)], specs[kind]) for n, kind in enumerate(kinds)]
    monkeypatch.setattr(vllm_objects, "KVCacheConfig", lambda *_: KVCacheConfig(blocks, [], groups))
    return Trial(asynchronous, document, caching=caching)
