"""llm-d's router: its default of 2026, its older one, and LMetric, from llm-d/llm-d-router.

Read as source, below pkg/epp/framework/plugins: scheduling/filter/prefixcacheaffinity at 066c20e,
scheduling/scorer/tokenload at 1b30d10, /queuedepth and /kvcacheutilization at 2342697, /prefix at 068b68d,
/lmetric at 1fee9c8, scheduling/picker at 5155e4c, requestcontrol/dataproducer/inflightload at 003369e,
/approximateprefix at 09a534f and /prefixhash at 129aa48; config/charts/routerlib at 00bacf3 for the older
default, and guides/optimized-baseline of llm-d/llm-d at 0a3b0c9 for the newer one.

Equals are taken in turn, as its picker does since August 2026; before it drew lots.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from e2e.bench.rivals.gateway import Engine, Request, Rival, Turns
from e2e.bench.rivals.text_blocks import bytes_of, cut_blocks
from headrace_engine.contracts import GatewayConfig
from headrace_engine.cost.model import Batch, chunk_work

AFFINITY_THRESHOLD = 0.80  # share of a prompt's blocks from which on an engine is sticky
MOST_PENALTY = 18.0  # seconds of TTFT by which a sticky engine may be behind (maxTTFTPenaltyMs)
FULL_TOKENS = 4_194_304  # in flight: from here on all score 0 (queueThresholdTokens)
SMALLEST_BLOCK = 64  # tokens (minBlockSizeTokens)
MOST_TOKENS = 131_072  # of a prompt that are looked up (maxPrefixTokensToMatch)
PREFIX_WEIGHT, QUEUE_WEIGHT, KV_WEIGHT = 3, 2, 2


@dataclass(slots=True)
class ApproximateIndex:
    """Which engine was sent which blocks; each remembers as many as it has KV blocks, the latest used."""

    capacities: Mapping[str, int]
    _bits: dict[str, int] = field(default_factory=dict)
    _held: dict[str, OrderedDict[int, None]] = field(default_factory=dict)  # the longest unused first
    _holders: dict[int, int] = field(default_factory=dict)  # block → set of engines, a bit each

    def __post_init__(self) -> None:
        """Begin with nothing held."""
        self._bits = {address: 1 << place for place, address in enumerate(self.capacities)}
        self._held = {address: OrderedDict() for address in self.capacities}

    def matches(self, blocks: Sequence[int]) -> dict[str, int]:
        """Count the blocks that each engine has of those up to the first that none has."""
        found: Counter[int] = Counter()
        for block in blocks:
            holders = self._holders.get(block, 0)
            if not holders:
                break
            found[holders] += 1
        return {
            address: sum(count for holders, count in found.items() if holders & bit)
            for address, bit in self._bits.items()
        }

    def record(self, address: str, blocks: Sequence[int]) -> None:
        """Note that an engine was sent these blocks."""
        held, bit = self._held[address], self._bits[address]
        for block in blocks:
            held[block] = None
            held.move_to_end(block)
            self._holders[block] = self._holders.get(block, 0) | bit
            if len(held) > self.capacities[address]:
                oldest, _ = held.popitem(last=False)
                self._holders[oldest] &= ~bit
                if not self._holders[oldest]:
                    del self._holders[oldest]


@dataclass(slots=True)
class Prefix:
    """What is known of one request's beginning: its hashed blocks, and how many each engine has."""

    request: Request
    blocks: list[int]
    total: int
    matches: Mapping[str, int]


class ApproximatePrefix(Rival):
    """Guesses what engines hold from what it sent them (approx-prefix-cache-producer, autoTune).

    Blocks have the engine's size, but 64 tokens at least, and the index as many as the engine has, whatever
    their size. Uncached tokens are counted in whole blocks.
    """

    def __init__(self, config: GatewayConfig, engines: Sequence[Engine], seed: int) -> None:
        super().__init__(config, engines, seed)
        self.block = max(SMALLEST_BLOCK, engines[0].settings.block_size)
        self.index = ApproximateIndex(
            {address: engine.settings.num_blocks for address, engine in self.engines.items()}
        )
        self.turns = Turns()
        self._last: Prefix | None = None  # the request that is chosen for

    def prefix(self, request: Request) -> Prefix:
        """Look a request's beginning up."""
        if self._last is None or self._last.request is not request:
            most = MOST_TOKENS // self.block
            blocks = cut_blocks(request.text, bytes_of(self.block), partial=True, most=most)
            total = len(blocks) or min(ceil(request.tokens / self.block), most)
            self._last = Prefix(request, blocks, total, self.index.matches(blocks))
        return self._last

    def share(self, request: Request, address: str) -> float:
        """Return the share of the prompt's blocks that the engine is believed to hold."""
        prefix = self.prefix(request)
        return prefix.matches[address] / prefix.total

    def uncached_tokens(self, request: Request, address: str) -> int:
        """Return the blocks that are not held, in tokens, and what is past the blocks that are looked up."""
        prefix = self.prefix(request)
        past = max(0, request.tokens - prefix.total * self.block)
        return (prefix.total - prefix.matches[address]) * self.block + past

    def sent(self, request: Request, address: str) -> None:
        """Remember where the prompt went."""
        self.index.record(address, self.prefix(request).blocks)


class OptimizedBaseline(ApproximatePrefix):
    """llm-d's default: prefix-cache-affinity-filter, then token-load-scorer, the highest score wins.

    Of the engines that hold 80 % of a prompt, or of all if none does, the one with the fewest uncached prompt
    tokens in flight, this request's own with it; tokens leave at the first token. A sticky set that is 18 s
    of prefill behind the others does not bind. The rate for that is what the guide has an operator measure:
    one full prefill chunk alone on an engine (peakPrefillThroughput; 15,928 tokens/s are built in).
    """

    def __init__(self, config: GatewayConfig, engines: Sequence[Engine], seed: int) -> None:
        super().__init__(config, engines, seed)
        chunk = engines[0].settings.max_num_batched_tokens
        alone = Batch(prefill_tokens=chunk, prefill_work=chunk_work(chunk, 0), prefills=1)
        self.prefill_rate = chunk / engines[0].cost.step_seconds(alone)

    def pick(self, request: Request, candidates: Sequence[str]) -> str:
        """Filter by prefix, and take the least loaded."""
        loads = {
            address: min(
                self.loads[address].prefill_tokens + self.uncached_tokens(request, address), FULL_TOKENS
            )
            for address in self.filter(request, candidates)
        }
        least = min(loads.values())
        return self.turns.pick([address for address, load in loads.items() if load == least])

    def filter(self, request: Request, candidates: Sequence[str]) -> Sequence[str]:
        """Keep the sticky engines, unless there are none or they are too far behind."""
        sticky, others = list[str](), list[str]()
        for each in candidates:
            (sticky if self.share(request, each) >= AFFINITY_THRESHOLD else others).append(each)
        if not sticky or not others:
            return candidates
        behind = self._least_tokens(sticky) - self._least_tokens(others)
        return candidates if behind / self.prefill_rate > MOST_PENALTY else sticky

    def _least_tokens(self, addresses: Sequence[str]) -> int:
        return min(self.loads[address].prefill_tokens for address in addresses)


class WeightedScorers(ApproximatePrefix):
    """llm-d's and the Gateway API Inference Extension's older default, which its chart still carries.

    Prefix-cache-scorer with weight 3, queue-scorer 2, kv-cache-utilization-scorer 2, by the engines' newest
    metrics, read every 50 ms; the highest sum wins. Queues score between the shortest, 1, and the longest, 0.
    """

    def pick(self, request: Request, candidates: Sequence[str]) -> str:
        """Take the highest sum of scores."""
        queues = {each: report.waiting for each in candidates if (report := self.report(each)) is not None}
        low, high = min(queues.values(), default=0), max(queues.values(), default=0)
        scores = {}
        for address in candidates:
            report, score = self.report(address), 0.0
            if report is not None:
                score += QUEUE_WEIGHT * (1.0 if low == high else (high - report.waiting) / (high - low))
                score += KV_WEIGHT * report.free_kv_blocks / report.total_kv_blocks
            scores[address] = score + PREFIX_WEIGHT * self.share(request, address)
        best = max(scores.values())
        return self.turns.pick([address for address, score in scores.items() if score == best])


class LMetric(Rival):
    """Uncached prompt tokens times requests in flight and one; least wins (arXiv 2603.15202; lmetric-scorer).

    What engines hold it knows from KV events (precise-prefix-cache-producer, without speculation), in the
    engine's blocks. Of the paper only the abstract could be read; the formula is the scorer's.
    """

    def __init__(self, config: GatewayConfig, engines: Sequence[Engine], seed: int) -> None:
        super().__init__(config, engines, seed)
        self.block = engines[0].settings.block_size
        self.turns = Turns()

    def pick(self, request: Request, candidates: Sequence[str]) -> str:
        """Take the least product."""
        costs = {
            address: self.uncached_tokens(request, address) * (self.loads[address].requests + 1)
            for address in candidates
        }
        least = min(costs.values())
        return self.turns.pick([address for address, cost in costs.items() if cost == least])

    def uncached_tokens(self, request: Request, address: str) -> int:
        """Return the blocks that are not in the engine's cache, in tokens."""
        total = request.tokens // self.block  # full ones only
        held = min(self.engines[address].cached_blocks(request.arrival), total)
        return (total - held) * self.block
