"""How far the start of an engine is: written by vLLM's processes before there is a board."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headrace_engine.contracts import ContractError, dumps, loads
from headrace_engine.control.files import read_start, write_whole

MAX_BYTES = 1 << 10


@dataclass(frozen=True, slots=True)
class PhaseInfo:
    """What an engine began to do last."""

    phase: str = ""  # Downloading, Loading, Compiling; empty: nothing was said
    since: float = 0.0  # unix seconds


def write_phase(path: Path, info: PhaseInfo) -> None:
    """Say what begins. Raises OSError."""
    write_whole(path, dumps(info).encode())


def read_phase(path: Path) -> PhaseInfo:
    """Read what began last, maybe in an earlier life of the engine; empty if it can't be understood."""
    try:
        return loads(PhaseInfo, read_start(path, MAX_BYTES))
    except ContractError:
        return PhaseInfo()
