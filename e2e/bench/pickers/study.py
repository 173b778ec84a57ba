"""Several pickers that all choose, in the simulator and before a real Envoy: `python -m e2e.bench.pickers`.

Measured is how soon one knows what another chose, and what one that ends or stalls costs while a real Envoy
asks two. Simulated is what it costs balance that they know a moment later, or not at all.
"""

import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import fmean

import uvloop

from e2e.bench.gateway.testbed import TestbedError
from e2e.bench.pickers import failover, telling
from e2e.bench.pickers.failover import RATE, Missed
from e2e.bench.report import intervals, markdown, results
from e2e.bench.report.intervals import Estimate
from e2e.bench.runs.command_line import make_parser, read_options
from e2e.bench.runs.fleet import FleetCase, measure
from e2e.bench.runs.pool import Figures
from e2e.bench.sal.cases import base
from headrace_gateway.simulated import ONE_PICKER, Pickers

COMMAND = "python -m e2e.bench.pickers"
NUMBERS = (2, 4)
LATE = Pickers(4, 0.002)
UNTOLD = Pickers(4, inf)
SEEDS = (0, 1, 2)
WORKLOADS = ("conversation", "code-poisson", "mooncake", "chats")
Found = Mapping[FleetCase, Figures]


def main() -> int:
    """Simulate, measure and write the figures; the exit status says whether all went well."""
    parser = make_parser(__doc__)
    parser.add_argument("--trials", type=int, default=6, help="of each end (default %(default)s)")
    arguments = parser.parse_args()
    options = read_options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends too
    try:
        told = uvloop.run(telling.measure())
        ends = uvloop.run(failover.measure(1 if options.quick else arguments.trials, _say))
    except TestbedError as error:
        _say(f"✗ {error}")
        return 1
    rows = {workload: _base(workload, quick=options.quick) for workload in WORKLOADS}
    kinds: dict[int | str, Pickers] = {number: Pickers(number) for number in (1, *NUMBERS)}
    kinds |= {"late": LATE, "untold": UNTOLD}
    cases = [
        replace(case, pickers=pickers, seed=seed)
        for case in rows.values()
        for pickers in kinds.values()
        for seed in SEEDS
    ]
    found = measure(cases, "pickers", options.workers)
    ratios = {
        (workload, kind): intervals.ratio(_ttfts(found, case, pickers), _ttfts(found, case, ONE_PICKER))
        for workload, case in rows.items()
        for kind, pickers in kinds.items()
        if kind != 1
    }
    figures = simulated_figures(ratios) | measured_figures(ends) | told
    print(results.write("pickers", COMMAND, figures, simulated=True, folder=options.folder))
    _write_page(_table(rows, found, ratios), ends, told, options.folder)
    return 0


def _base(workload: str, *, quick: bool) -> FleetCase:
    case = base(workload, 0.9)
    return replace(case, engines=2, requests=10) if quick else case


def _ttfts(found: Found, case: FleetCase, pickers: Pickers) -> list[float]:
    return [float(found[replace(case, pickers=pickers, seed=seed)]["ttft_mean"]) for seed in SEEDS]


def simulated_figures(ratios: Mapping[tuple[str, int | str], Estimate]) -> dict[str, float]:
    """Return mean TTFT of several pickers over one's: the worst workload's, and each one's."""
    figures: dict[str, float] = {}
    for (workload, kind), ratio in ratios.items():
        name = f"ttft_ratio_{kind}"
        figures |= intervals.keyed(f"{name}_{workload.replace('-', '_')}", ratio)
        figures[name] = max(figures.get(name, 0.0), ratio.value)
    return {name: round(value, 4) for name, value in figures.items()}


def measured_figures(ends: Mapping[str, Sequence[Missed]]) -> dict[str, float]:
    """Return seconds, requests without a picker, and failures, the worst of each kind of end."""
    figures: dict[str, float] = {}
    for end, missed in ends.items():
        figures[f"{end}_least_request_seconds"] = round(max(each.seconds for each in missed), 3)
        figures[f"{end}_least_request_requests"] = max(each.requests for each in missed)
    figures["failed_requests"] = sum(each.failures for missed in ends.values() for each in missed)
    figures["failover_least_request_seconds"] = figures["killed_least_request_seconds"]
    return figures


def _table(
    rows: Mapping[str, FleetCase], found: Found, ratios: Mapping[tuple[str, int | str], Estimate]
) -> str:
    kinds: dict[int | str, str] = {number: f"{number} pickers" for number in NUMBERS}
    kinds |= {
        "late": f"4 that hear {1000 * LATE.delay:g} ms later",
        "untold": "4 that tell each other nothing",
    }
    body: list[list[markdown.Cell]] = [
        [
            f"{workload}, load 0.9",
            1000 * fmean(_ttfts(found, case, ONE_PICKER)),
            *(ratios[workload, kind] for kind in kinds),
        ]
        for workload, case in rows.items()
    ]
    return markdown.table(["", "one picker, ms", *kinds.values()], body)


def _write_page(
    table: str, ends: Mapping[str, Sequence[Missed]], told: Mapping[str, float], folder: Path
) -> None:
    ended: list[list[markdown.Cell]] = [
        [
            f"{end} ({len(missed)} times)",
            max(each.seconds for each in missed),
            max(each.requests for each in missed),
            sum(each.failures for each in missed),
        ]
        for end, missed in ends.items()
    ]
    markdown.page(
        "pickers",
        "Several pickers that all choose",
        "Any picker may get any request. The others hear of each choice"
        f" {1000 * ONE_PICKER.delay:g} ms later, and all follow every engine's reports. Mean TTFT over that"
        " with one picker, 95 % intervals over three seeds. Measured between two processes on loopback, which"
        f" share two cores with other work: {told['told_p50_ms']:.2g} ms in the median,"
        f" {told['told_p99_ms']:.2g} ms at p99.",
        table,
        "## A picker that ends",
        f"Measured: a real Envoy asks two real pickers, {RATE:g} requests a second, and one of them is"
        " killed, stalls (SIGSTOP), or is stopped in good order. Envoy asks the other; what neither answers"
        " in time it sends on by least requests. The worst of all times:",
        markdown.table(["", "seconds to the last such request", "such requests", "failed requests"], ended),
        folder=folder,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
