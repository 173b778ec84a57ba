"""A ring of records: the engine appends and never waits, the sidecar drains and knows what it missed.

Record number n (from 1) lies in slot (n - 1) mod capacity with n as its sequence. The number of records ever
appended stands after the file's head, twice, so that a reader sees when it is being changed; it is raised
after the record is in place. A reader that falls more than a lap behind has lost the overwritten records, and
counts them. When the engine boots again the reader finishes the old file, which it still holds open, before
it starts on the new one.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import Generic

from headrace_engine.control.files import map_new, open_regular
from headrace_engine.control.layout import HEAD, Layout, SlotWriter, T

COUNT = Struct("<QQ")
SLOTS_AT = HEAD.size + COUNT.size


class RingWriter(Generic[T]):
    """Appends records from one thread. Raises OSError when the file can't be created."""

    def __init__(self, path: Path, layout: Layout[T], capacity: int) -> None:
        self._size = layout.slot.size
        self._end = capacity * self._size
        self._mapping = map_new(path, SLOTS_AT + self._end, layout.head(capacity, 0))
        self._view = memoryview(self._mapping)
        self._slots = self._view[SLOTS_AT:]
        self._writer = SlotWriter(layout)
        self._count = 0
        self._offset = 0

    def append(self, record: T) -> None:
        """Add one record, in the place of the oldest."""
        self._count += 1
        self._writer.write(self._slots[self._offset : self._offset + self._size], self._count, record)
        self._view[HEAD.size : SLOTS_AT] = COUNT.pack(self._count, self._count)
        self._offset += self._size
        if self._offset == self._end:
            self._offset = 0

    def close(self) -> None:
        """Release the mapping; the file stays readable."""
        self._slots.release()
        self._view.release()
        self._mapping.close()


class RingReader(Generic[T]):
    """Reads the ring at `path` from the oldest record that it still holds; `lost` counts the missed ones."""

    def __init__(self, path: Path, layout: Layout[T]) -> None:
        self._path = path
        self._layout = layout
        self._descriptor: int | None = None
        self._capacity = 0
        self._seen = 0
        self._first = True
        self.lost = 0

    def drain(self) -> list[T]:
        """Read the records appended since the last call, oldest first."""
        records = self._collect()
        if self._is_replaced():
            self.close()
            self._open()
            records += self._collect()
        self._first = False
        return records

    def close(self) -> None:
        """Let go of the file; the next drain starts on whatever is there then."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _is_replaced(self) -> bool:
        """Tell whether the path names another file than the open one, which outlives its name."""
        try:
            named = self._path.lstat()
        except OSError:
            return False
        if self._descriptor is None:
            return True
        held = os.fstat(self._descriptor)
        return (named.st_ino, named.st_dev) != (held.st_ino, held.st_dev)

    def _open(self) -> None:
        descriptor = open_regular(self._path)
        if descriptor is None:
            return
        head = self._layout.parse_head(os.pread(descriptor, HEAD.size, 0))
        if head is None or os.fstat(descriptor).st_size != SLOTS_AT + head[0] * self._layout.slot.size:
            os.close(descriptor)
            return
        self._descriptor, self._capacity, self._seen = descriptor, head[0], 0
        if self._first:  # what was overwritten before this reader came was not for it
            self._seen = max(0, self._count() - self._capacity)

    def _collect(self) -> list[T]:
        """Read what the open file has beyond the records already seen."""
        records: list[T] = []
        count = self._count()
        missed = count - self._seen - self._capacity
        if missed > 0:
            self.lost += missed
            self._seen += missed
        while self._seen < count:
            first = self._seen % self._capacity
            batch = min(count - self._seen, self._capacity - first)
            records += self._read_slots(first, batch)
        return records

    def _read_slots(self, first: int, batch: int) -> list[T]:
        """Read records `_seen + 1 …` from `batch` neighbouring slots, less those overwritten meanwhile."""
        assert self._descriptor is not None  # noqa: S101
        size = self._layout.slot.size
        data = os.pread(self._descriptor, batch * size, SLOTS_AT + first * size)
        records = []
        for index in range(batch):
            self._seen += 1
            found = self._layout.unpack(data, index * size)
            if found is not None and found[0] == self._seen:
                records.append(found[1])
            else:
                self.lost += 1
        return records

    def _count(self) -> int:
        """Count the records ever appended to the open file; those already seen if nobody can tell now."""
        if self._descriptor is None:
            return self._seen
        data = os.pread(self._descriptor, COUNT.size, HEAD.size)
        if len(data) < COUNT.size:
            return self._seen
        first, second = COUNT.unpack(data)
        return first if first == second else self._seen
