"""Block hashes for vLLM's prefix cache, from the prefix ids of an arrival instead of token ids.

vLLM compares hashes only, each of which stands for all tokens up to the end of its block. So a number for
each chain of prefix ids will do. Blocks past the ids, and those with output, are like no other request's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace_engine.sim.workloads.arrival import Arrival


class PrefixHashes:
    """Of one engine's requests, with `block_size` tokens to a block."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._chains: dict[tuple[int, int], int] = {}  # (chain before, id) → chain
        self._requests = 0
        self._numbers: list[bytes] = []  # of blocks in a request

    def hasher(self, arrival: Arrival) -> Callable[[Any], list[bytes]]:
        """Make what vLLM asks for the hashes of the blocks that filled up since it last asked."""
        chains, chain = [], 0
        for prefix_id in arrival.prefix:
            chain = self._chains.setdefault((chain, prefix_id), len(self._chains) + 1)
            chains.append(chain.to_bytes(8, "big"))
        self._requests += 1
        own = b"own" + self._requests.to_bytes(8, "big")
        size, span = self._block_size, arrival.prefix_block
        numbers = self._numbers
        numbers += [block.to_bytes(4, "big") for block in range(len(numbers), arrival.tokens // size)]
        named = min(arrival.prompt_tokens, len(chains) * span) // size  # blocks that the prefix ids cover

        def hashes(request: Any) -> list[bytes]:
            known, full = len(request.block_hashes), len(request._all_token_ids) // size  # noqa: SLF001
            if known == full:
                return []
            shared = [
                chains[((block + 1) * size - 1) // span] + numbers[block] for block in range(known, named)
            ]
            return shared + [own + number for number in numbers[known + len(shared) : full]]

        return hashes

    def shared_hashes(self, arrival: Arrival) -> Iterator[bytes]:
        """Give the hashes of blocks that prefix ids cover, as long as requests of this engine had them."""
        chains, chain = [], 0
        for prefix_id in arrival.prefix:
            known = self._chains.get((chain, prefix_id))
            if known is None:
                break
            chain = known
            chains.append(chain.to_bytes(8, "big"))
        size, span = self._block_size, arrival.prefix_block
        for block in range(min(arrival.prompt_tokens, len(chains) * span) // size):
            yield chains[((block + 1) * size - 1) // span] + block.to_bytes(4, "big")
