"""What every study of the benchmarks has in common: its command line, and where its results go.

A study is a module `e2e.bench.NAME` with `run(options)`, and `main()` that calls it with `options(__doc__)`.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

from e2e.bench.results import RESULTS


@dataclass(frozen=True, slots=True)
class Options:
    """How to run a study. `quick`: a tiny version of the same code, whose figures say nothing."""

    quick: bool = False
    workers: int = 2
    folder: Path = RESULTS  # a temporary one with `quick`: it never touches the kept results


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options of every study; the first line of the description is shown."""
    made = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    made.add_argument("--quick", action="store_true", help="a tiny version; keeps no result")
    made.add_argument("--workers", type=int, default=2, help="processes (default %(default)s)")
    return made


def chosen(arguments: argparse.Namespace) -> Options:
    """What the command line asks for."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-quick-")) if arguments.quick else RESULTS
    return Options(quick=arguments.quick, workers=max(1, arguments.workers), folder=folder)


def options(description: str | None) -> Options:
    """The options of a study's own command line."""
    return chosen(parser(description).parse_args())
