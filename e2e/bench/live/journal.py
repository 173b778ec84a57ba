"""What was found so far, a line each in one file, so that a study that is stopped goes on where it was.

The file's name is of the machine, the device's settings and the source that the figures depend on: what
changes one of them begins anew. A line that was cut off counts as never written.
"""

import dataclasses
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from e2e.bench.live.cases import Device, Run
from e2e.bench.report import results
from e2e.bench.runs import pool
from e2e.cluster.places import REPOSITORY

Entry = Mapping[str, Any]
FILES = (
    "calibration",
    "cases",
    "clients",
    "figures",
    "forecast",
    "measure",
    "servers",
    "step_ring",
    "step_table",
    "study",
)
SOURCES = (
    *pool.ENGINE_SOURCES[:2],
    *(REPOSITORY / "e2e/bench/live" / f"{name}.py" for name in FILES),
    REPOSITORY / "e2e/bench/real_engine/vllm_server.py",
    REPOSITORY / "e2e/demo/replay.py",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Journal:
    """One file of entries, each with a kind and a key within it; the last of a key counts."""

    path: Path

    def write(self, kind: str, key: str, entry: Entry) -> None:
        """Add an entry; it is on the disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"kind": kind, "key": key, "entry": entry}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self, kind: str) -> dict[str, Entry]:
        """Return the entries of a kind by key."""
        return {line["key"]: line["entry"] for line in self._lines() if line["kind"] == kind}

    def _lines(self) -> Iterator[Any]:
        if not self.path.exists():
            return
        for line in self.path.read_text().splitlines():
            try:
                yield json.loads(line)
            except ValueError:  # cut off
                continue


def hardware(device: Device) -> str:
    """Describe what engines run on; raises OSError or CalledProcessError where a GPU's driver is missing."""
    if device.name == "cpu":
        return results.machine()
    ask = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    told = subprocess.run(ask, check=True, capture_output=True, text=True).stdout
    return f"{told.splitlines()[0]}; {results.machine()}"


def place(device: Device, folder: Path = pool.CACHE) -> Path:
    """Return where the journal of this device is, on this machine and with this source."""
    text = json.dumps([hardware(device), dataclasses.asdict(device), pool.source_digest(SOURCES)])
    return folder / f"live-{device.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"


def key(run: Run) -> str:
    """Name a run in the journal."""
    return f"{run.workload} {run.load:g} {run.repetition} {run.contestant}"
