"""vLLM's pool of KV blocks, with what one group of full attention does not need left out.

Every block that is handed out, filled or freed passes here, and vLLM asks of each what only other kinds of
layers, partly filled blocks, events and statistics make of it. What is unlike that goes through vLLM's code.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import KVCacheBlock, make_block_hash_with_group_id

GROUP = make_block_hash_with_group_id(b"", 0)  # what the key of a block ends with, after its hash


class QuickBlockPool(BlockPool):  # type: ignore[misc]  # mypy does not follow vLLM
    """The pool of a KV cache with one group, whose blocks are hashed as they are; tells no events."""

    def get_new_blocks(self, num_blocks: int) -> list[Any]:
        """Hand out the blocks that were free longest, and forget what was cached in them."""
        if not self.enable_caching or num_blocks > self.get_num_free_blocks():
            blocks: list[Any] = super().get_new_blocks(num_blocks)
            return blocks
        blocks = self.free_block_queue.popleft_n(num_blocks)
        forget = self.cached_block_hash_to_block._cache.pop  # noqa: SLF001
        for block in blocks:
            key = block._block_hash  # noqa: SLF001
            if key is not None:
                found = forget(key)
                if found is block:
                    block._block_hash = block._block_hash_num_tokens = None  # noqa: SLF001
                else:  # one of several with the same tokens
                    self.cached_block_hash_to_block._cache[key] = found  # noqa: SLF001
                    self._maybe_evict_cached_block(block)
            block.ref_cnt = 1
        return blocks

    def cache_full_blocks(
        self,
        request: Any,
        blocks: list[Any],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        *_: Any,
        **__: Any,
    ) -> None:
        """Make `blocks` from `num_cached_blocks` up to `num_full_blocks` found by their hashes."""
        hashes, cached = request.block_hashes, self.cached_block_hash_to_block
        find_or_add = cached._cache.setdefault  # noqa: SLF001
        for place in range(num_cached_blocks, num_full_blocks):
            block, key = blocks[place], hashes[place] + GROUP
            block._block_hash = key  # noqa: SLF001
            block._block_hash_num_tokens = (place + 1) * block_size  # noqa: SLF001
            if find_or_add(key, block) is not block:
                cached.insert(key, block)

    def get_cached_block(self, block_hash: Any, kv_cache_group_ids: list[int]) -> list[Any] | None:
        """Find a block with this hash; of several the first."""
        found = self.cached_block_hash_to_block._cache.get(block_hash + GROUP)  # noqa: SLF001
        if found is None:
            return None
        if type(found) is KVCacheBlock:
            return [found]
        several: list[Any] = super().get_cached_block(block_hash, kv_cache_group_ids)
        return several

    def free_blocks(self, ordered_blocks: Iterable[Any]) -> None:
        """Let go of blocks, in the order in which to use them again; those that are cached, last of all."""
        first, last = list[Any](), list[Any]()
        for block in ordered_blocks:
            references = block.ref_cnt = block.ref_cnt - 1
            if not references and not block.is_null:
                (first if block._block_hash is None else last).append(block)  # noqa: SLF001
        self.free_block_queue.prepend_n(first)
        self.free_block_queue.append_n(last)
