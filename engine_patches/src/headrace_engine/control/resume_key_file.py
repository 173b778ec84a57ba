"""The engine's copy of the key with which the gateway signs what to resume; the sidecar replaces it."""

from __future__ import annotations

import logging
from pathlib import Path

from headrace_engine.contracts import ContractError, loads
from headrace_engine.contracts.resume_arguments import ResumeKey
from headrace_engine.control.files import file_identity, read_start

log = logging.getLogger("vllm.headrace")

MOST_BYTES = 16 << 10


class ResumeKeyFile:
    """The key at `path`, read when it is asked for and has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] = ()
        self._key: ResumeKey | None = None

    def read(self) -> ResumeKey | None:
        """Return the key; None if there is none, or what is there is not one."""
        found = file_identity(self._path)
        if found != self._seen:
            self._seen, self._key = found, self._load() if found else None
        return self._key

    def _load(self) -> ResumeKey | None:
        try:
            return loads(ResumeKey, read_start(self._path, MOST_BYTES))
        except ContractError as error:
            log.warning("headrace: requests can't be resumed: %s: %s", self._path.name, error)
            return None
