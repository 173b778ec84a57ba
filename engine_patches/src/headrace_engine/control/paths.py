"""Where the shared files are; the folder is `HEADRACE_DIR` in both containers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT_ROOT = "/headrace"


@dataclass(frozen=True, slots=True)
class StatsPaths:
    """The files that one engine rank writes."""

    boot: Path
    board: Path
    steps: Path
    finished: Path
    phase: Path


def shared_folder() -> Path:
    """Return the shared folder of this container."""
    return Path(os.environ.get("HEADRACE_DIR", DEFAULT_ROOT))


def policy_path(root: Path) -> Path:
    """Return where the engine's copy of the policy document is."""
    return root / "control" / "policy.json"


def resume_key_path(root: Path) -> Path:
    """Return where the engine's copy of the gateway's public key is."""
    return root / "control" / "resume-key.json"


def turn_group_path(root: Path) -> Path:
    """Return where the engine finds with whom it shares its GPU."""
    return root / "control" / "turn-group.json"


def stats_paths(root: Path, rank: int = 0) -> StatsPaths:
    """Return the files in which engine rank `rank` reports."""
    stem = root / "stats" / f"rank{rank}"
    suffixes = (".json", ".board", ".steps", ".finished", ".phase")
    return StatsPaths(*(stem.with_suffix(suffix) for suffix in suffixes))
