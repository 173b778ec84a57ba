"""Bytes of a record that one process writes while another may be reading it.

    file  = head, slot, slot, …        head = magic, version, slot size, capacity, boot
    slot  = sequence, record, checksum, sequence        all little-endian, unpadded

A writer sets the first sequence, the record with its checksum, the last sequence, in this order. A reader
copies the slot at once and believes it only if both sequences agree and the checksum, which covers the first
sequence too, is right. So a copy that was torn by a write is noticed on any processor, whatever its memory
order, and neither side ever waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Annotated, Any, Generic, TypeVar, get_type_hints
from zlib import crc32

T = TypeVar("T", bound=tuple[Any, ...])

# Types of a record's fields; what is beside each is its code in `struct`.
UInt32 = Annotated[int, "I"]
UInt64 = Annotated[int, "Q"]
Float64 = Annotated[float, "d"]
Bool = Annotated[bool, "?"]

HEAD = Struct("<8sIIQQ")
SEQUENCE = Struct("<Q")
CHECKSUM = Struct("<I")
MAX_CAPACITY = 1 << 16  # slots; what one drain of a ring may cost the reader
TAIL_SIZE = CHECKSUM.size + SEQUENCE.size


@dataclass(frozen=True, slots=True)
class Layout(Generic[T]):
    """How records of one type are laid out in their file."""

    magic: bytes
    version: int
    record: type[T]
    slot: Struct

    def head(self, capacity: int, boot: int) -> bytes:
        """Make the head of a file of `capacity` slots."""
        return HEAD.pack(self.magic, self.version, self.slot.size, capacity, boot)

    def parse_head(self, data: bytes) -> tuple[int, int] | None:
        """Read (capacity, boot) of a file that begins with `data`; None if layout or version differ."""
        if len(data) < HEAD.size:
            return None
        magic, version, size, capacity, boot = HEAD.unpack_from(data)
        if (magic, version, size) != (self.magic, self.version, self.slot.size):
            return None
        if not 1 <= capacity <= MAX_CAPACITY:
            return None
        return capacity, boot

    def unpack(self, data: bytes, offset: int = 0) -> tuple[int, T] | None:
        """Read (sequence, record) of the slot at `offset`; None if it is empty, torn or cut short."""
        end = offset + self.slot.size
        if len(data) < end:
            return None
        sequence, *values, checksum, last = self.slot.unpack_from(data, offset)
        if sequence == 0 or sequence != last or checksum != crc32(data[offset : end - TAIL_SIZE]):
            return None
        return sequence, self.record(*values)


class SlotWriter(Generic[T]):
    """Packs a record aside, then copies it into a slot in the order that readers rely on."""

    def __init__(self, layout: Layout[T]) -> None:
        self._pack = layout.slot.pack_into
        self._aside = bytearray(layout.slot.size)
        self._checksum_at = layout.slot.size - TAIL_SIZE
        view = memoryview(self._aside)
        self._first = view[: SEQUENCE.size]
        self._covered = view[: self._checksum_at]
        self._body = view[SEQUENCE.size : -SEQUENCE.size]
        self._last = view[-SEQUENCE.size :]

    def write(self, target: memoryview, sequence: int, record: T) -> None:
        """Write `record` with `sequence` into the slot `target`."""
        self._pack(self._aside, 0, sequence, *record, 0, sequence)
        CHECKSUM.pack_into(self._aside, self._checksum_at, crc32(self._covered))
        target[: SEQUENCE.size] = self._first
        target[SEQUENCE.size : -SEQUENCE.size] = self._body
        target[-SEQUENCE.size :] = self._last


def make_layout(magic: bytes, version: int, record: type[T]) -> Layout[T]:
    """Make the layout of the named tuple `record` from the types of its fields, in their order."""
    hints = get_type_hints(record, include_extras=True)
    codes = "".join(hint.__metadata__[0] for hint in hints.values())
    return Layout(magic, version, record, Struct(f"<Q{codes}IQ"))
