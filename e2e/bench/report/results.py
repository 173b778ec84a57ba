"""Where benchmarks leave their figures: `e2e/bench/results/NAME.json`.

Each file says how its numbers came about, so that they can be measured again: the command, the commit of the
tree (marked when the tree held changes beyond it), the machine, and whether the engine was simulated. The
pages that show some of them are renewed at once.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster.places import REPOSITORY

RESULTS = Path(__file__).parents[1] / "results"
_PAGES = REPOSITORY / "docs/generate.py"


def write(
    name: str,
    command: str,
    figures: Mapping[str, float | Mapping[str, float] | None],
    *,
    simulated: bool = False,
    keep_other_figures: bool = False,
    folder: Path = RESULTS,
) -> Path:
    """Write `folder/name.json`; figures that are None are left out. A figure may be a table of figures.

    With `keep_other_figures`, figures already in the file which this run did not measure stay.
    """
    path = folder / f"{name}.json"
    kept = json.loads(path.read_text())["figures"] if keep_other_figures and path.exists() else {}
    measured = {key: value for key, value in figures.items() if value is not None}
    document = {
        "command": command,
        "commit": commit(),
        "machine": machine(),
        "simulated": simulated,
        "figures": kept | measured,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
    if folder == RESULTS:
        subprocess.run([sys.executable, str(_PAGES)], check=True, stdout=subprocess.DEVNULL)
    return path


def commit() -> str:
    """Return the tree's commit, `+changes` when tracked files differ from it, `unknown` outside git."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        shown = ("e2e/bench/results", "docs", "README.md")  # no figure depends on them
        places = (":/", *(f":(top,exclude){place}" for place in shown))
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", *places)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+changes" if changed else "")


def machine() -> str:
    """Describe the machine in one line: processor, usable cores, memory, kernel."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{_processor()}, {cores} cores, {memory:.0f} GiB, Linux {platform.release()}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
