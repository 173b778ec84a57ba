"""Which engine probably holds the beginning of a prompt in its prefix cache, from what was sent where.

vLLM keeps the KV blocks of finished requests until it needs the room, least recently used first. This index
remembers, for each engine, the prompts that it was sent, as hashes of their text's chunks: a chunk's hash
includes all text before it, so equal hashes mean equal beginnings. An engine's chunks are forgotten, the
longest unused first and a prompt's end before its beginning, when they are more than its cache holds.

Chunks grow with their distance from the start, so that short prompts are told apart finely and long ones cost
little. The hash has 64 bits and is the same in every picker. Who finds texts of equal hash can mislead the
choice for prompts that he knows, and nothing else.
"""

import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

SIZES = ((256, 4096), (1024, 32_768), (4096, 1 << 40))  # bytes of a chunk, and up to which offset
HASH_BYTES = 8
MOST_CHUNKS = 131_072  # of all engines of one service together, unless told less; some 300 bytes each

Chunks = list[tuple[int, int]]
"""A text's whole chunks from its start: (hash of the text up to the chunk's end, bytes of the chunk)."""


def cut_chunks(text: bytes) -> Chunks:
    """Cut and hash `text`; an unfinished last chunk is left out."""
    chunks: Chunks = []
    chain = start = 0
    for size in _sizes():
        if start + size > len(text):
            break
        chain = xxh3_64_intdigest(text[start : start + size], chain)
        chunks.append((chain, size))
        start += size
    return chunks


def _sizes() -> Iterator[int]:
    """Yield the bytes of each chunk of a text without an end."""
    start = 0
    for size, end in SIZES:
        while start + size <= end:
            yield size
            start += size


class Beginning(NamedTuple):
    """A text's chunks, and how many bytes it has."""

    chunks: Chunks
    size: int


def cut_beginning(text: bytes) -> Beginning:
    """Cut a text up, and say how long it is."""
    return Beginning(cut_chunks(text), len(text))


def pack(chunks: Chunks) -> bytes:
    """Write a text's chunks, from its start: `HASH_BYTES` each."""
    return struct.pack(f"<{len(chunks)}Q", *(chunk for chunk, _ in chunks))


def unpack(packed: bytes) -> Chunks:
    """Read what `pack` wrote; raises ValueError if something is cut off."""
    if len(packed) % HASH_BYTES:
        raise ValueError("the last hash is cut off")
    return list(zip(struct.unpack(f"<{len(packed) // HASH_BYTES}Q", packed), _sizes(), strict=False))


@dataclass(slots=True)
class _Cache:
    """One engine's chunks, the longest unused first."""

    bit: int
    boot: str = ""
    capacity: float = 0.0  # bytes of text
    chunks: OrderedDict[int, int] = field(default_factory=OrderedDict)  # hash → bytes
    bytes: int = 0


@dataclass(slots=True)
class PrefixIndex:
    """What the engines of one service hold, by address; `most` chunks of all of them together."""

    most: int = MOST_CHUNKS
    _caches: dict[str, _Cache] = field(default_factory=dict)
    _holders: dict[int, int] = field(default_factory=dict)  # hash → set of engines, a bit each

    def keep_engines(self, addresses: Iterable[str]) -> None:
        """Make these the engines; what the others held is forgotten."""
        wanted = list(addresses)
        for address in self._caches.keys() - set(wanted):
            self._clear(self._caches.pop(address))
        used = {cache.bit for cache in self._caches.values()}
        free = (1 << place for place in range(len(wanted)) if 1 << place not in used)
        for address in wanted:
            if address not in self._caches:
                self._caches[address] = _Cache(next(free))

    def resize(self, address: str, boot: str, capacity: float) -> None:
        """Take in that an engine of life `boot` holds `capacity` bytes of text; another life begins empty."""
        cache = self._caches.get(address)
        if cache is None:
            return
        if cache.boot != boot:
            cache.boot = boot
            self._clear(cache)
        cache.capacity = capacity
        self._trim(cache)

    def cached(self, chunks: Chunks) -> Mapping[str, int]:
        """Return how many bytes from the text's start each engine holds; engines without any are left out."""
        depths: dict[int, int] = {}  # set of engines → bytes
        alive, depth = -1, 0
        for chain, size in chunks:
            held = self._holders.get(chain, 0) & alive
            if held != alive:
                depths[alive & ~held] = depth
                if not held:
                    break
                alive = held
            depth += size
        else:
            depths[alive] = depth
        if len(depths) == 1:
            return {}
        found = {}
        for address, cache in self._caches.items():
            for engines, length in depths.items():
                if engines & cache.bit:
                    if length:
                        found[address] = length
                    break
        return found

    def record(self, address: str, chunks: Chunks) -> None:
        """Note that a prompt was sent to the engine at `address`."""
        cache = self._caches.get(address)
        if cache is None or cache.capacity <= 0:
            return
        held, bit = cache.chunks, cache.bit
        for chain, size in reversed(chunks):  # the end first, so that it is the first to be forgotten
            if chain in held:
                held.move_to_end(chain)
            else:
                held[chain] = size
                cache.bytes += size
                self._holders[chain] = self._holders.get(chain, 0) | bit
        self._trim(cache)

    def __len__(self) -> int:
        """Chunks remembered, over all engines."""
        return sum(len(cache.chunks) for cache in self._caches.values())

    def _trim(self, cache: _Cache) -> None:
        most = self.most // len(self._caches)
        while cache.chunks and (cache.bytes > cache.capacity or len(cache.chunks) > most):
            chain, size = cache.chunks.popitem(last=False)
            cache.bytes -= size
            self._release(chain, cache.bit)

    def _clear(self, cache: _Cache) -> None:
        for chain in cache.chunks:
            self._release(chain, cache.bit)
        cache.chunks.clear()
        cache.bytes = 0

    def _release(self, chain: int, bit: int) -> None:
        left = self._holders[chain] & ~bit
        if left:
            self._holders[chain] = left
        else:
            del self._holders[chain]
