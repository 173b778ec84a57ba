"""Long outages of the API server, and quarrels with another writer: `python -m e2e.bench.outages`.

One real API server, and for each case an operator of its own that watches one namespace through a fault proxy
of its own; all cases run at once, in real time. The way of an outage is that of `e2e.faults.Proxy.OUTAGES`.
While it lasts (`--seconds`) someone changes the service's replicas and deletes one of its objects. In a
quarrel (a minute) another writer changes fields of ours twenty times a second.

A case held when it broke no limit. Writes outages.json: `i07` and `i08` are the shares of
outages and quarrels that held, the others the worst figures over all outages or quarrels.
"""

import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from e2e.bench.outages.testbed import QUARRELS, Outage, Quarrel, Testbed, outage, prepare, quarrel
from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from e2e.cluster.control_plane import WORKLOADS, ControlPlane
from e2e.faults import Proxy

QUARREL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that must hold in every outage."""

    requests_per_second: float = 1.0  # of one operator, over an outage
    healed_seconds: float = 60.0  # after an outage
    writes_per_second: float = 2.0  # to one object, in a quarrel
    settled_seconds: float = 10.0  # after a quarrel


def find_broken_limits(case: Outage | Quarrel, limits: Limits | None = None) -> list[str]:
    """Name the limits that the case broke; none if it held."""
    limits = limits or Limits()
    if isinstance(case, Outage):
        wrong = {
            f"{case.deletions} deletions": case.deletions > 0,
            "the operator ended": not case.alive,
            "pods would have been replaced": not case.same_pods,
            f"{case.requests_per_second:.2f} requests a second": (
                case.requests_per_second > limits.requests_per_second
            ),
            f"healed after {case.healed_seconds:.1f} s": case.healed_seconds > limits.healed_seconds,
        }
    else:
        wrong = {
            f"{case.writes_per_second:.2f} writes a second": (
                case.writes_per_second > limits.writes_per_second
            ),
            "nothing was put back": case.writes_per_second == 0.0,
            "the other's own fields were taken away": not case.foreign_kept,
            f"settled after {case.settled_seconds:.1f} s": case.settled_seconds > limits.settled_seconds,
        }
    return [what for what, so in wrong.items() if so]


def figures(cases: Sequence[Outage | Quarrel], seconds: float) -> dict[str, float]:
    """Return shares and worst values over all cases."""
    outages = [case for case in cases if isinstance(case, Outage)]
    quarrels = [case for case in cases if isinstance(case, Quarrel)]
    return {
        "i07": _share(outages),
        "i08": _share(quarrels),
        "outages": len(outages),
        "outage_seconds": seconds,
        "deletions": sum(case.deletions for case in outages),
        "restarts": sum(not case.alive for case in outages),
        "requests_per_second": round(max(case.requests_per_second for case in outages), 3),
        "healed_seconds": round(max(case.healed_seconds for case in outages), 2),
        "quarrels": len(quarrels),
        "writes_per_second": round(max(case.writes_per_second for case in quarrels), 3),
        "settled_seconds": round(max(case.settled_seconds for case in quarrels), 2),
    }


def _share(cases: Sequence[Outage | Quarrel]) -> float:
    return round(sum(not find_broken_limits(case) for case in cases) / len(cases), 4)


def measure(seconds: float, folder: Path) -> list[Outage | Quarrel]:
    """Run every case; the outages begin together, when all operators are ready."""
    with ControlPlane(WORKLOADS) as control_plane:
        names = [*Proxy.OUTAGES, *QUARRELS]
        together = threading.Barrier(len(names))

        def run(name: str) -> Outage | Quarrel:
            try:
                with prepare(control_plane, name, folder) as testbed:
                    together.wait(120)
                    return _deed(name, seconds)(testbed)
            except BaseException:
                together.abort()
                raise

        with ThreadPoolExecutor(len(names)) as pool:
            return list(pool.map(run, names))


def _deed(name: str, seconds: float) -> Callable[[Testbed], Outage | Quarrel]:
    if name in QUARRELS:
        return lambda testbed: quarrel(testbed, name, min(seconds, QUARREL_SECONDS))
    return lambda testbed: outage(testbed, name, seconds)


def main() -> int:
    """Measure, print, write; the exit status says whether every case held."""
    parser = describe(__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="of an outage (default %(default)s)")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="headrace-outages-") as folder:
        cases = measure(seconds, Path(folder))
    for case in cases:
        wrong = find_broken_limits(case)
        print(f"  {'✗' if wrong else '✓'} {case}" + (f": {', '.join(wrong)}" if wrong else ""))
    print(
        results.write(
            "outages", f"python -m e2e.bench.outages --seconds {seconds:g}", figures(cases, seconds)
        )
    )
    return int(any(find_broken_limits(case) for case in cases))
