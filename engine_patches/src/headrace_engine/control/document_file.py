"""The engine's copy of a document that may change while it runs, such as the key for what to resume."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Generic, TypeVar

from headrace_engine.contracts import ContractError, loads
from headrace_engine.control.files import file_identity, read_start

log = logging.getLogger("vllm.headrace")

MOST_BYTES = 16 << 10

Document = TypeVar("Document")


class DocumentFile(Generic[Document]):
    """The document at `path`, read when it is asked for and has changed. `lost`: what goes wrong without."""

    def __init__(self, path: Path, kind: type[Document], lost: str) -> None:
        self._path = path
        self._kind = kind
        self._lost = lost
        self._seen: tuple[int, ...] = ()
        self._document: Document | None = None

    def read(self) -> Document | None:
        """Return the document; None if there is none, or what is there is not one."""
        found = file_identity(self._path)
        if found != self._seen:
            self._seen, self._document = found, self._load() if found else None
        return self._document

    def _load(self) -> Document | None:
        try:
            return loads(self._kind, read_start(self._path, MOST_BYTES))
        except ContractError as error:
            log.warning("headrace: %s: %s: %s", self._lost, self._path.name, error)
            return None
