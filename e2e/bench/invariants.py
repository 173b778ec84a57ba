"""How the operator's invariants held: `python -m e2e.bench.invariants [--seeds 500] [--specs 10000]`.

Runs the tests on a real API server whose docstring begins with "Invariant N", more cases of each than the
test suite does. The figure of an invariant is the share of its cases that held: each seed, each spec, each
call at which the operator dies and each way of an outage is a case. With `--real-time` no wait is shortened,
and outages last five minutes.
"""

import argparse
import os
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

from e2e.bench import results

TESTS = "operator/tests"
_NUMBER = re.compile(r"Invariant (\d+):")


class Tally:
    """A pytest plugin that counts, for each invariant, its cases and those that held."""

    def __init__(self) -> None:
        self.cases: defaultdict[int, list[bool]] = defaultdict(list)
        self._numbers: dict[str, int] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests of invariants alone."""
        for item in items:
            found = _NUMBER.match(getattr(getattr(item, "obj", None), "__doc__", None) or "")
            if found:
                self._numbers[item.nodeid] = int(found[1])
        items[:] = [item for item in items if item.nodeid in self._numbers]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A case is over, or could not even be set up."""
        if report.when != "call" and report.passed:
            return
        told = dict(report.user_properties)  # by a test that tries many
        count, held = told.get("cases", 1), told.get("held", int(report.passed))
        self.cases[self._numbers[report.nodeid]] += [number < held for number in range(count)]

    def shares(self) -> Mapping[str, float]:
        """Figures by name."""
        return {
            f"i{number:02}": round(sum(held) / len(held), 4) for number, held in sorted(self.cases.items())
        }


def main() -> int:
    """Run the tests and write the shares; the exit status is pytest's."""
    parser = argparse.ArgumentParser(description="Which share of each invariant's cases held.")
    parser.add_argument("--seeds", type=int, default=200, help="generated sequences (default %(default)s)")
    parser.add_argument("--specs", type=int, default=10_000, help="generated specs (default %(default)s)")
    parser.add_argument("--real-time", action="store_true", help="outages of five minutes, no wait shortened")
    options = parser.parse_args()
    os.environ |= {"HEADRACE_SEEDS": str(options.seeds), "HEADRACE_SPECS": str(options.specs)}
    if options.real_time:
        os.environ["HEADRACE_HURRY"] = "1"
    tally = Tally()
    status = pytest.main(["-q", "-m", "apiserver", "-p", "no:cacheprovider", TESTS], plugins=[tally])
    if not tally.cases:
        return int(status)
    for number, held in sorted(tally.cases.items()):
        print(f"  i{number:02}  {sum(held):6} of {len(held):6} cases held")
    command = f"python -m e2e.bench.invariants --seeds {options.seeds} --specs {options.specs}"
    command += " --real-time" if options.real_time else ""
    print(results.write("invariants", command, tally.shares()))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
