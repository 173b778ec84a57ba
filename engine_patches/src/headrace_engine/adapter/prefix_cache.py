"""What of a request's KV is there already, by the hashes that vLLM gave its blocks.

Only looked at: nothing is counted as a hit, held or kept from eviction. vLLM looks again when it starts the
request, and that look decides.

Whoever has a block has all before it, and vLLM frees the last blocks of a request first. So where one group
of layers keeps all tokens, how far a prompt is cached, and how far running requests hold it, are found by
bisection. Any other model's caches are asked as vLLM asks them, block by block, which a step does a few times
and no more; what was found before stands meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

from headrace_engine.adapter.vllm_types import KVCacheBlock, VllmRequest, VllmScheduler

BLOCK_BY_BLOCK = 4  # look-ups of that kind in a step, at most


class PrefixCache:
    """Of one vLLM scheduler; without prefix caching nothing is looked up."""

    def __init__(self, scheduler: VllmScheduler) -> None:
        manager = scheduler.kv_cache_manager
        self._pool = manager.block_pool
        self._coordinator = manager.coordinator
        managers = manager.coordinator.single_type_managers
        self._enabled = bool(manager.enable_caching and managers)
        self._whole = [each for each in managers if isinstance(each, FullAttentionManager)]
        self._bisects = (
            len(managers) == 1
            and type(managers[0]) is FullAttentionManager
            and managers[0].block_size == self._pool.hash_block_size
            and not manager.coordinator.eagle_group_ids
        )
        self._found: dict[VllmRequest, tuple[int, int]] = {}  # block by block: cached tokens, shared blocks
        self._left = BLOCK_BY_BLOCK

    def begin_step(self) -> None:
        """Allow new look-ups, as a step begins."""
        self._left = BLOCK_BY_BLOCK

    def forget(self, request: VllmRequest) -> None:
        """Forget `request`, which left the queue."""
        self._found.pop(request, None)

    def cached_tokens(self, request: VllmRequest) -> int:
        """Count the tokens from its beginning that need not be computed if it starts now; not all of them."""
        if request.num_computed_tokens or not self._is_readable(request):
            return request.num_computed_tokens
        if self._bisects:
            return self._hits(request) * self._pool.hash_block_size
        return self._look_up(request)[0]

    def shared_blocks(self, request: VllmRequest) -> int:
        """Count its KV blocks that others hold, too: to start takes, and to end frees, none of them."""
        if not (self._enabled and self._whole):
            return 0
        name = request.request_id
        if any(name in manager.req_to_blocks for manager in self._whole):
            return sum(_shared(manager.req_to_blocks.get(name, ())) for manager in self._whole)
        if not self._is_readable(request):
            return 0
        if not self._bisects:
            return self._look_up(request)[1]
        hashes, pool = request.block_hashes, self._pool
        return bisect_left(
            range(self._hits(request)),
            True,
            key=lambda place: pool.get_cached_block(hashes[place], [0])[0].ref_cnt < 1,  # type: ignore[index]  # it is a hit
        )

    def _is_readable(self, request: VllmRequest) -> bool:
        return bool(self._enabled and request.block_hashes and not request.skip_reading_prefix_cache)

    def _hits(self, request: VllmRequest) -> int:
        """Count the cached blocks from its beginning on; without the last token, which is always computed."""
        hashes, pool = request.block_hashes, self._pool
        most = min(len(hashes), (request.num_tokens - 1) // pool.hash_block_size)
        if not most or pool.get_cached_block(hashes[0], [0]) is None:
            return 0
        return bisect_left(
            range(most), True, key=lambda place: pool.get_cached_block(hashes[place], [0]) is None
        )

    def _look_up(self, request: VllmRequest) -> tuple[int, int]:
        found = self._found.get(request, (0, 0))
        if not self._left:
            return found
        self._left -= 1
        blocks, tokens, *_ = self._coordinator.find_longest_cache_hit(
            request.block_hashes, request.num_tokens - 1
        )
        shared = sum(block.ref_cnt > 0 for each in self._whole for block in blocks[each.kv_cache_group_id])
        self._found[request] = found = (tokens, shared)
        return found


def _shared(blocks: Sequence[KVCacheBlock]) -> int:
    """Count those of a request's `blocks` that others hold, too."""
    return bisect_left(range(len(blocks)), True, key=lambda place: blocks[place].ref_cnt < 2)
