"""From the service's ConfigMap to the engine: documents that the engine checks by itself."""

from __future__ import annotations

import logging
from pathlib import Path

from headrace_engine.contracts import text_hash
from headrace_engine.control.document_file import MOST_BYTES
from headrace_engine.control.files import file_identity, read_start, write_whole

log = logging.getLogger(__name__)


class FileHandover:
    """Keeps `target`, the engine's copy, like `source`, be that there or not."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source = source
        self._target = target
        self._given: tuple[int, ...] | None = None  # None: not known what an earlier life gave
        self.given_hash = ""  # of the text of the document that the engine has; empty: none
        self._failing: int | None = None

    def hand_over_new(self) -> None:
        """Hand the document over, or take it back, if it has changed; what fails is tried again next time."""
        found = file_identity(self._source)
        if found == self._given:
            return
        try:
            if found:
                text = read_start(self._source.resolve(), MOST_BYTES)
                write_whole(self._target, text)
                self.given_hash = text_hash(text)
            else:
                self._target.unlink(missing_ok=True)
                self.given_hash = ""
        except OSError as error:
            if error.errno != self._failing:  # the message would name a temporary file
                log.warning("cannot keep %s up to date: %s", self._target, error.strerror)
            self._failing = error.errno
        else:
            self._given, self._failing = found, None
