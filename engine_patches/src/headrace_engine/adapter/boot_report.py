"""Tells the sidecar which scheduler this life of the engine runs, in stats/rank<r>.json."""

from __future__ import annotations

import logging
import os
import secrets
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import vllm

from headrace_engine.control.boot import BootInfo, write_boot
from headrace_engine.control.paths import stats_paths

log = logging.getLogger("vllm.headrace")


def report_boot(  # noqa: PLR0917
    root: Path, rank: int, stock: type, reason: str = "", boot: str = "", max_model_len: int = 0
) -> None:
    """Write the boot report of this engine: mode Policy, or Stock if there is a `reason`. Never raises."""
    if reason:
        log.warning("headrace: vLLM's own scheduler runs, no policy is applied: %s", reason)
    try:
        info = BootInfo(
            boot=boot or secrets.token_hex(8),
            pid=os.getpid(),
            vllm_version=vllm.__version__,
            plugin_version=plugin_version(),
            mode="Stock" if reason else "Policy",
            reason=reason,
            async_scheduling=stock.__name__ == "AsyncScheduler",
            started_at=time.time(),
            max_model_len=max_model_len,
        )
        write_boot(stats_paths(root, rank).boot, info)
    except Exception:  # not only OSError: it runs within vLLM's start
        log.exception("headrace: the boot report could not be written")


def plugin_version() -> str:
    """Return the version of this package; empty if it came without metadata."""
    try:
        return version("headrace-engine")
    except PackageNotFoundError:
        return ""
