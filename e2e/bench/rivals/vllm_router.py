"""vllm-router's default, cache_aware, with its defaults.

Read: src/policies/cache_aware.rs of vllm-project/router at 16917f4, and the defaults of its package
vllm-router 0.1.17 on PyPI (router_args.py). The package's own policy is compiled and could not be read; run
before three idle servers, it sends all that matches little to the first of them, as here. Of sglang-router's
cache_aware, from which it was forked, only sgl-router at 026f853 of sgl-project/sglang was read, which sends
what matches little to the engine with the smallest tree.
"""

from collections.abc import Sequence

from e2e.bench.rivals.gateway import Engine, Request, Rival
from e2e.bench.rivals.radix_tree import RadixTree
from headrace_engine.contracts import GatewayConfig

CACHE_THRESHOLD = 0.3  # share of a text that must match
ABSOLUTE, RELATIVE = 64, 1.5  # requests between the most and the least loaded, and their ratio
EVICTION_INTERVAL = 120.0  # seconds
MOST_CHARACTERS = 2**25  # of one engine in the tree (max_tree_size)


class CacheAware(Rival):
    """Where the longest beginning of the text went, if that is more than 0.3 of it; else least requests.

    Least requests in any case while the most loaded engine has both 64 requests and half as many more than
    the least loaded. Equals: the first.
    """

    def __init__(self, config: GatewayConfig, engines: Sequence[Engine], seed: int) -> None:
        super().__init__(config, engines, seed)
        self.tree = RadixTree()
        self._evicted_at = 0.0

    def pick(self, request: Request, candidates: Sequence[str]) -> str:
        """Choose by load or by the tree, and remember."""
        self._evict(request.now)
        requests = {address: self.loads[address].requests for address in candidates}
        chosen = min(requests, key=requests.__getitem__)
        low, high = requests[chosen], max(requests.values())
        balanced = not (high - low > ABSOLUTE and high > RELATIVE * low)
        if balanced and request.text:
            owner, matched = self.tree.match(request.text)
            if owner in requests and matched / len(request.text) > CACHE_THRESHOLD:
                chosen = owner
        self.tree.insert(request.text, chosen)
        return chosen

    def drop_engine(self, engine: int, now: float) -> None:
        """Forget an engine and its texts."""
        super().drop_engine(engine, now)
        self.tree.remove(str(engine))

    def _evict(self, now: float) -> None:
        if now - self._evicted_at >= EVICTION_INTERVAL:
            self._evicted_at = now
            self.tree.evict(MOST_CHARACTERS)
