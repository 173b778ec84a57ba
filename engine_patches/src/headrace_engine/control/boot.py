"""Who booted: written once by each life of an engine, read by the sidecar."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headrace_engine.contracts import ContractError, dumps, loads
from headrace_engine.control.files import read_start, write_whole

MAX_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class BootInfo:
    """One life of an engine process.

    `boot` is that of its `BoardWriter`; an engine without a board (mode Stock) makes one up.
    """

    boot: str
    pid: int  # in the engine's own container
    vllm_version: str
    plugin_version: str
    mode: Literal["Policy", "Stock"]  # Stock: vLLM's own scheduler runs
    reason: str = ""  # of Stock, one sentence for people
    async_scheduling: bool = False
    started_at: float = 0.0  # unix seconds
    max_model_len: int = 0  # tokens of prompt and output together; 0: not said


def write_boot(path: Path, info: BootInfo) -> None:
    """Write the report of this life of the engine. Raises OSError."""
    write_whole(path, dumps(info).encode())


def read_boot(path: Path) -> BootInfo | None:
    """Read the report of the engine that booted last; None if none did or the file can't be understood."""
    try:
        return loads(BootInfo, read_start(path, MAX_BYTES))
    except ContractError:
        return None
