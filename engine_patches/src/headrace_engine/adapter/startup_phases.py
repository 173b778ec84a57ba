"""Tells the sidecar how far vLLM's start is, from vLLM's own log and the hub's client, in stats/rank0.phase.

Nothing of vLLM is changed by it, and nothing fails with it: where a text or the client is another, as in a
vLLM whose log level is above INFO, that phase is not told. All processes of an engine write the one file.
"""

from __future__ import annotations

import functools
import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace_engine.control.phase import PhaseInfo, read_phase, write_phase

# How vLLM's log lines begin, each where its phase does.
BEGINNINGS = (
    ("Starting to load model", "Loading"),
    ("Model loading took", "Compiling"),
    ("Warming up model", "Compiling"),
)


def watch_startup(path: Path) -> None:
    """Tell of this process and of those that are forked from it."""
    logging.getLogger("vllm").addHandler(_PhaseHandler(path))
    with suppress(ImportError):
        import huggingface_hub  # noqa: PLC0415 vLLM may come without

        _watch_downloads(huggingface_hub.HfApi, path)


class _PhaseHandler(logging.Handler):
    """Knows phases by the log lines that begin them."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.INFO)
        self._path = path
        self._made = time.time()

    def emit(self, record: logging.LogRecord) -> None:
        """Handle a line of vLLM's own log; never raises."""
        try:
            self._record(record)
        except Exception:
            self.handleError(record)

    def _record(self, record: logging.LogRecord) -> None:
        text = str(record.msg)
        for beginning, phase in BEGINNINGS:
            if text.startswith(beginning) and not (phase == "Loading" and self._is_downloading()):
                _begin(self._path, phase)

    def _is_downloading(self) -> bool:
        """Tell whether another rank of this engine downloads, for which this one will wait."""
        now = read_phase(self._path)
        return now.phase == "Downloading" and now.since >= self._made


def _watch_downloads(client: Any, path: Path) -> None:
    """Have a method of the hub's client tell when it begins and ends."""
    stock = client.snapshot_download

    @functools.wraps(stock)
    def snapshot_download(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("local_files_only"):
            return stock(*args, **kwargs)
        _begin(path, "Downloading")
        try:
            return stock(*args, **kwargs)
        finally:
            _begin(path, "Loading")

    client.snapshot_download = snapshot_download


def _begin(path: Path, phase: str) -> None:
    with suppress(Exception):  # it is called in the midst of vLLM's start
        write_phase(path, PhaseInfo(phase, time.time()))
