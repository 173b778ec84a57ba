"""NVIDIA Dynamo's KV router with its defaults, from ai-dynamo/dynamo.

Read as source: lib/kv-router/src/scheduling/selector/default.rs at 07a6c9c, scheduling/config.rs at 0243c51
(defaults), and excerpts of sequences/prompt_registry.rs (what counts as active); docs/components/router at
057096c, by which requests no longer queue at the router by default.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from e2e.bench.rivals.gateway import Engine, Request, Rival
from e2e.bench.rivals.text_blocks import bytes_of, cut_blocks
from headrace_engine.contracts import GatewayConfig

OVERLAP_CREDIT = 1.0  # of a cached block (overlap_score_credit)
PREFILL_SCALE = 1.0  # of prefill blocks against decode blocks (prefill_load_scale)


@dataclass(slots=True)
class ActiveBlocks:
    """The prompt blocks of the requests in flight to one engine, each once."""

    shared: Counter[int] = field(default_factory=Counter)  # hash → requests
    own: int = 0  # of prompts that begin like no other

    def __len__(self) -> int:
        """Count them."""
        return len(self.shared) + self.own

    def additional(self, blocks: Sequence[int]) -> int:
        """Count those of `blocks` that are not active: none is behind one that is not."""
        low, high = 0, len(blocks)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if blocks[middle] in self.shared else (low, middle)
        return len(blocks) - low

    def add(self, blocks: Sequence[int], own: int) -> None:
        """Take in a request's blocks."""
        self.shared.update(blocks)
        self.own += own

    def remove(self, blocks: Sequence[int], own: int) -> None:
        """Take a request's blocks out."""
        self.own -= own
        for block in blocks:
            self.shared[block] -= 1
            if not self.shared[block]:
                del self.shared[block]


class KvRouter(Rival):
    """Prefill blocks and decode blocks, as they would be with the request; the least sum wins.

    Prefill: the uncached tokens of requests without a first token, and this one's, by KV events. Decode: the
    full prompt blocks of all requests in flight, shared ones counted once, and those that this one adds.
    Blocks are the engine's. Temperature 0, ties by lot, outputs not tracked, no queue.
    """

    def __init__(self, config: GatewayConfig, engines: Sequence[Engine], seed: int) -> None:
        super().__init__(config, engines, seed)
        self.block = engines[0].settings.block_size
        self.active = {address: ActiveBlocks() for address in self.engines}
        self._blocks: dict[int, tuple[list[int], int]] = {}  # of requests in flight: shared ones, own

    def pick(self, request: Request, candidates: Sequence[str]) -> str:
        """Take the least cost."""
        blocks, own = self._blocks[id(request)] = self._cut(request)
        costs = {address: self._cost(request, address, blocks, own) for address in candidates}
        least = min(costs.values())
        return self.random.choice([address for address, cost in costs.items() if cost == least])

    def _cost(self, request: Request, address: str, blocks: Sequence[int], own: int) -> float:
        active, held = self.active[address], self._held(request, address)
        prefill = (self.loads[address].prefill_tokens + request.tokens) / self.block - OVERLAP_CREDIT * held
        decode = len(active) + active.additional(blocks) + own
        return PREFILL_SCALE * max(prefill, 0.0) + decode

    def uncached_tokens(self, request: Request, address: str) -> int:
        """Return the tokens that are not in the engine's cache."""
        return max(0, request.tokens - self._held(request, address) * self.block)

    def sent(self, request: Request, address: str) -> None:
        """Count the request's blocks as active."""
        self.active[address].add(*self._blocks[id(request)])

    def done(self, request: Request, address: str) -> None:
        """Count them no longer."""
        self.active[address].remove(*self._blocks.pop(id(request)))

    def _held(self, request: Request, address: str) -> int:
        return self.engines[address].cached_blocks(request.arrival)

    def _cut(self, request: Request) -> tuple[list[int], int]:
        """Return the hashes of the prompt's full blocks, or how many it has if it begins like no other."""
        if request.text:
            return cut_blocks(request.text, bytes_of(self.block), partial=False), 0
        return [], request.tokens // self.block
