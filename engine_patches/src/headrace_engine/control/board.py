"""The stats board: one record that says what an engine holds now.

The engine overwrites it every few steps, a reader looks whenever it likes. The head names the boot, so that
a reader can tell which process its cumulative numbers belong to.
"""

from __future__ import annotations

import secrets
import threading
from pathlib import Path

from headrace_engine.control.files import map_new, read_start
from headrace_engine.control.layout import HEAD, SlotWriter
from headrace_engine.control.records import BOARD, BoardRecord

READ_ATTEMPTS = 4  # a slot is torn for about a microsecond; a writer that died in it stays torn


class BoardWriter:
    """Writes one engine rank's board, from any thread. Raises OSError when the file can't be created.

    `boot` identifies this life of the engine (16 hex digits).
    """

    def __init__(self, path: Path) -> None:
        self.boot = secrets.token_hex(8)
        head = BOARD.head(1, int(self.boot, 16))
        self._mapping = map_new(path, HEAD.size + BOARD.slot.size, head)
        self._view = memoryview(self._mapping)
        self._slot = self._view[HEAD.size :]
        self._writer = SlotWriter(BOARD)
        self._sequence = 0
        self._lock = threading.Lock()

    def write(self, record: BoardRecord) -> None:
        """Replace the record on the board."""
        with self._lock:
            self._sequence += 1
            self._writer.write(self._slot, self._sequence, record)

    def close(self) -> None:
        """Release the mapping; the file stays with its last record."""
        self._slot.release()
        self._view.release()
        self._mapping.close()


class BoardReader:
    """Reads the board at `path`, whoever writes it at that moment.

    `boot` is that of the record last returned; empty before.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.boot = ""

    def read(self) -> BoardRecord | None:
        """Read the engine's latest record; None if there is no board, or no record that is whole."""
        for _ in range(READ_ATTEMPTS):
            data = read_start(self._path, HEAD.size + BOARD.slot.size)
            head = BOARD.parse_head(data)
            if head is None:
                return None
            found = BOARD.unpack(data, HEAD.size)
            if found is not None:
                self.boot = f"{head[1]:016x}"
                return found[1]
        return None
