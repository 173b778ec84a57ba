"""Leaves the reason for an engine's death where the kubelet looks for it.

When its engine process has died, vLLM's server ends with code 0, of which the kubelet keeps no log; and where
it does, the last lines are of the server's end and not of what caused it.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

# Where Kubernetes mounts it, unless a pod says otherwise.
TERMINATION_LOG = Path("/dev/termination-log")
# How vLLM's log lines begin that tell of an engine's end.
FATAL = (
    "EngineCore failed to start",
    "EngineCore encountered a fatal error",
    "WorkerProc failed to start",
    "Worker proc",
    "AsyncLLM output_handler failed",
)
_LIMIT = 1000  # characters


def install_handler(path: Path = TERMINATION_LOG) -> None:
    """Keep the last words of this process and of those that are forked from it, if there is such a file."""
    if path.is_file():
        logging.getLogger("vllm").addHandler(_FatalErrorHandler(path))


class _FatalErrorHandler(logging.Handler):
    """Writes the first fatal error: what comes after it follows from it."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.ERROR)
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        """Handle a line of vLLM's own log; never raises."""
        try:
            self._write(record)
        except Exception:
            self.handleError(record)

    def _write(self, record: logging.LogRecord) -> None:
        if not str(record.msg).startswith(FATAL):
            return
        raised = record.exc_info[1] if record.exc_info else None
        words = f"{type(raised).__name__}: {raised}" if raised else record.getMessage()
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_size == 0:
                    os.write(descriptor, " ".join(words.split())[:_LIMIT].encode(errors="replace"))
            finally:
                os.close(descriptor)
