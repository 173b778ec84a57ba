"""How the operator's invariants held: `python -m e2e.bench.invariants [NUMBER …] [--seeds 500]`.

Runs the tests on a real API server whose docstring begins with "Invariant N", more cases of each than the
test suite does. The figure of an invariant is the share of its cases that held: each seed, each spec, each
call at which the operator dies and each way of an outage is a case. With `--real-time` no wait is shortened,
and outages last five minutes.

Some are measured by other benchmarks, whose results are read if they are there: real outages and quarrels
(7 and 8) by `outages`, the operator's absence under load (10) by `faults`, size and soak (13 and 14) by
`operator_scale`, where a case is a figure within its target.
"""

import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.bench.report import results
from e2e.bench.runs.command_line import describe

TESTS = "operator/tests"
# Figures of operator.json and the most that each may be.
TARGETS = {
    13: {
        "reconcile_300_seconds": 60.0,
        "reconcile_1000_seconds": 200.0,
        "rss_mib": 256.0,
        "event_to_apply_p99_seconds": 1.0,
        "fixpoint_writes": 0.0,
        "fixpoint_writes_of_a_fresh_operator": 0.0,
    },
    14: {"soak_growth_mib": 2.0},
}
# Shares in other results, by file and figure.
SHARES = {7: ("outages", "i07"), 8: ("outages", "i08"), 10: ("faults", "operator_away_share")}
_NUMBER = re.compile(r"Invariant (\d+):")


class Tally:
    """A pytest plugin that counts, for each invariant, its cases and those that held."""

    def __init__(self, wanted: Collection[int]) -> None:
        self.cases: defaultdict[int, list[bool]] = defaultdict(list)
        self._wanted = wanted  # empty: all
        self._numbers: dict[str, int] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests of invariants alone."""
        for item in items:
            found = _NUMBER.match(getattr(getattr(item, "obj", None), "__doc__", None) or "")
            if found and (not self._wanted or int(found[1]) in self._wanted):
                self._numbers[item.nodeid] = int(found[1])
        items[:] = [item for item in items if item.nodeid in self._numbers]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Take in that a case is over, or could not even be set up."""
        if report.when != "call" and report.passed:
            return
        told = dict(report.user_properties)  # by a test that tries many
        count, held = told.get("cases", 1), told.get("held", int(report.passed))
        self.cases[self._numbers[report.nodeid]] += [number < held for number in range(count)]

    def shares(self) -> dict[int, float]:
        """Return the share of cases that held, by invariant."""
        return {number: sum(held) / len(held) for number, held in self.cases.items()}


def elsewhere(folder: Path = results.RESULTS) -> dict[int, float]:
    """Read the shares that other benchmarks measured, as far as their results are there."""
    found = {}
    for number, targets in TARGETS.items():
        figures = _figures(folder / "operator.json")
        held = [figures[name] <= most for name, most in targets.items() if name in figures]
        if held:
            found[number] = sum(held) / len(targets)
    for number, (file, name) in SHARES.items():
        figures = _figures(folder / f"{file}.json")
        if name in figures:
            found[number] = figures[name]
    return found


def combined(tested: Mapping[int, float], measured: Mapping[int, float]) -> dict[str, float]:
    """Return figures by name; of two shares of one invariant the lower counts."""
    numbers = sorted({*tested, *measured})
    return {f"i{n:02}": round(min(tested.get(n, 1.0), measured.get(n, 1.0)), 4) for n in numbers}


def _figures(path: Path) -> dict[str, float]:
    return dict(json.loads(path.read_text())["figures"]) if path.exists() else {}


def main() -> int:
    """Run the tests and write the shares; the exit status is pytest's."""
    parser = describe(__doc__)
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="invariants (default all)")
    parser.add_argument("--seeds", type=int, default=200, help="generated sequences (default %(default)s)")
    parser.add_argument("--specs", type=int, default=10_000, help="generated specs (default %(default)s)")
    parser.add_argument("--kills", type=int, default=20, help="leaders killed (default %(default)s)")
    parser.add_argument("--real-time", action="store_true", help="outages of five minutes, no wait shortened")
    options = parser.parse_args()
    sizes = {"seeds": options.seeds, "specs": options.specs, "kills": options.kills}
    os.environ |= {f"HEADRACE_{name.upper()}": str(count) for name, count in sizes.items()}
    if options.real_time:
        os.environ["HEADRACE_HURRY"] = "1"
    tally = Tally(options.numbers)
    status = pytest.main(["-q", "-m", "apiserver", "-p", "no:cacheprovider", TESTS], plugins=[tally])
    for number, held in sorted(tally.cases.items()):
        print(f"  i{number:02}  {sum(held):6} of {len(held):6} cases held")
    told = [*map(str, options.numbers), *(f"--{name} {count}" for name, count in sizes.items())]
    command = " ".join(["python -m e2e.bench.invariants", *told])
    command += " --real-time" if options.real_time else ""
    figures = combined(tally.shares(), elsewhere())
    print(results.write("invariants", command, figures, keep_other_figures=bool(options.numbers)))
    return int(status) if tally.cases else 0


if __name__ == "__main__":
    sys.exit(main())
