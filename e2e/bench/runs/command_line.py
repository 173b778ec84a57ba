"""The command line of every study, and where its results go.

A study is a package `e2e.bench.NAME` with `study.py`, or a module where one file holds it. Those that run in
the pool have `run(options)`, and `main()` that calls it with `parse_options(__doc__)`.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

from e2e.bench.report.results import RESULTS


@dataclass(frozen=True, slots=True)
class Options:
    """How to run a study. `quick`: a tiny version of the same code, whose figures say nothing."""

    quick: bool = False
    workers: int = 2
    folder: Path = RESULTS  # a temporary one with `quick`: it never touches the stored results


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Make a parser with the options of every study; the first line of the description is shown."""
    made = describe(description)
    made.add_argument("--quick", action="store_true", help="a tiny version; stores no result")
    made.add_argument("--workers", type=int, default=2, help="processes (default %(default)s)")
    return made


def describe(description: str | None) -> argparse.ArgumentParser:
    """Make a parser without options, which shows the first line of the description."""
    return argparse.ArgumentParser(description=(description or "").partition("\n")[0])


def read_options(arguments: argparse.Namespace) -> Options:
    """Turn parsed arguments into the options of a study."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-quick-")) if arguments.quick else RESULTS
    return Options(quick=arguments.quick, workers=max(1, arguments.workers), folder=folder)


def parse_options(description: str | None) -> Options:
    """Parse a study's own command line."""
    return read_options(make_parser(description).parse_args())
