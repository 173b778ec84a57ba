"""AIBrix's prefix-cache routing with its defaults, from vllm-project/aibrix.

Read as source: pkg/plugins/gateway/algorithms/prefix_cache.go at 01de8a5, least_request.go at 0140735,
pkg/utils/prefixcacheindexer/hash.go at 0871c21 and pkg/utils/lrustore at 0a50a16. Blocks are of 128
characters, as its documentation says and recommends; without that setting the code takes 4.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from e2e.bench.rivals.gateway import Engine, Request, Rival
from e2e.bench.rivals.text_blocks import cut_blocks
from headrace_engine.contracts import GatewayConfig

BLOCK = 128  # characters (AIBRIX_PREFIX_CACHE_BLOCK_SIZE)
MOST_BLOCKS = 200_000  # of all engines together (AIBRIX_PREFIX_CACHE_BLOCK_NUMBER)
DEVIATIONS = 1  # above the mean that a matching engine may be (…_STANDARD_DEVIATION_FACTOR)
IMBALANCE_FACTOR, IMBALANCE_GAP = 2.0, 8  # of requests (…_LOAD_IMBALANCE_FACTOR, …_MIN_GAP)


@dataclass(slots=True)
class PrefixTable:
    """Which engines were sent which blocks; the blocks longest unsent are forgotten."""

    most: int = MOST_BLOCKS
    _blocks: OrderedDict[int, set[str]] = field(default_factory=OrderedDict)

    def match(self, blocks: Sequence[int], candidates: Collection[str]) -> dict[str, int]:
        """Return the percentage of the blocks from the first on that each candidate has, if it has any."""
        found: dict[str, int] = {}
        left = set(candidates)
        for number, block in enumerate(blocks, start=1):
            left = left & self._blocks.get(block, set())
            if not left:
                break
            found |= dict.fromkeys(left, number * 100 // len(blocks))
        return found

    def add(self, blocks: Sequence[int], address: str) -> None:
        """Note that an engine was sent these blocks."""
        for block in blocks:
            self._blocks.setdefault(block, set()).add(address)
            self._blocks.move_to_end(block)
            if len(self._blocks) > self.most:
                self._blocks.popitem(last=False)


class PrefixCache(Rival):
    """The best prefix match among engines that are not busier than mean + deviation; else least requests.

    Where the busiest engine is far from the rest only the least busy ones are matched. Equal matches: fewer
    requests in flight, then by lot.
    """

    def __init__(self, config: GatewayConfig, engines: Sequence[Engine], seed: int) -> None:
        super().__init__(config, engines, seed)
        self.table = PrefixTable()

    def pick(self, request: Request, candidates: Sequence[str]) -> str:
        """Match the prefix, fall back to least requests, and remember."""
        requests = {address: self.loads[address].requests for address in candidates}
        blocks = cut_blocks(request.text, BLOCK, partial=False)
        matched = self.table.match(blocks, least_busy(requests) if imbalanced(requests) else candidates)
        counts = requests.values()
        limit = fmean(counts) + DEVIATIONS * (stdev(counts) if len(counts) > 1 else 0.0)
        fitting = [address for address in matched if requests[address] <= limit]
        if fitting:
            best = min((-matched[address], requests[address]) for address in fitting)
            tied = [each for each in fitting if (-matched[each], requests[each]) == best]
        else:
            tied = least_busy(requests)
        chosen = self.random.choice(sorted(tied, key=int))
        self.table.add(blocks, chosen)
        return chosen


def imbalanced(requests: dict[str, int]) -> bool:
    """Tell whether the busiest engine stands far out."""
    low, high, mean = min(requests.values()), max(requests.values()), fmean(requests.values())
    return high > IMBALANCE_FACTOR * (mean + 1) and high - low >= IMBALANCE_GAP


def least_busy(requests: dict[str, int]) -> list[str]:
    """Return the engines with the fewest requests in flight."""
    low = min(requests.values())
    return [address for address, count in requests.items() if count == low]
