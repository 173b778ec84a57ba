"""Where the local cluster keeps what: one cache that outlives it, one state folder per cluster that does not.

Everything that takes minutes to make (binaries, image archives, the vLLM runtime, the tiny model) is
in the cache under a name that carries its version or the hash of its inputs, so that a second bring-up
finds it and a changed input makes a new entry.
"""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
STATE = Path("/var/lib/headrace-cluster")


def cache() -> Path:
    """Give the cache folder (`$XDG_CACHE_HOME/headrace`, by default `~/.cache/headrace`)."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "headrace"
