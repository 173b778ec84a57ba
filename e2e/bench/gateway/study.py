"""The real gateway, measured on this machine: `python -m e2e.bench.gateway`.

First its cost: Envoy with the real picker beside plain Envoy, taking turns, in front of engines that answer
at once. Load generator, both Envoys, picker and engines share the machine's cores, so the rate is what is
left for the gateway beside them. Then how fast streams that stepped back go on. Then the waits: four
balancers, each with four stand-in engines in real time behind the same Envoy and picker, the same requests
for all; and what the simulated fleet says of them.

All on loopback. About seven minutes; for timings the machine should do nothing else.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import uvloop

from e2e.bench.gateway import cost, going_on, pick_cost, route_cost, simulated_waits
from e2e.bench.gateway import waits as queue_waits
from e2e.bench.gateway.settings import BALANCERS, COST, ENGINES, WORKLOAD
from e2e.bench.gateway.testbed import TestbedError
from e2e.bench.gateway.waits import KEYS, LOADS, Waits
from e2e.bench.report import markdown, plots, results
from e2e.bench.report.intervals import Estimate
from e2e.bench.runs.command_line import describe

COMMAND = "python -m e2e.bench.gateway"
SIMULATED_RUNS = 2  # of each load
TITLE = "Mean queue wait behind the real gateway: SAL against other balancers"


def main() -> int:
    """Measure and write the figures; the exit status says whether all went well."""
    parser = describe(__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="of each cost (default %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="of each load (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=25, help="of a run (default %(default)s)")
    parser.add_argument(
        "--only", choices=["cost", "going-on", "waits"], help="measure one part; the others' figures stay"
    )
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends too
    figures: dict[str, float] = {}
    try:
        if chosen.only in {None, "cost"}:
            _say("1. what the gateway costs")
            figures |= pick_cost.measure() | uvloop.run(cost.measure(chosen.rounds, _say))
            figures |= uvloop.run(route_cost.measure(chosen.rounds, _say))
        if chosen.only in {None, "going-on"}:
            _say("2. streams that stepped back go on")
            figures |= uvloop.run(going_on.measure(_say))
        if chosen.only in {None, "waits"}:
            _say(f"3. queue waits, {WORKLOAD} on {ENGINES} x {COST.profile.model} {COST.profile.gpu}")
            rate, waits = uvloop.run(queue_waits.measure(chosen.runs, chosen.seconds, _say))
            predicted = simulated_waits.predict(rate, min(chosen.runs, SIMULATED_RUNS), chosen.seconds)
            figures |= {"engine_requests_per_second": round(rate, 2)} | queue_waits.figures(waits)
            figures |= {f"simulated_{k}": v for k, v in queue_waits.figures(predicted).items()}
            draw(waits, predicted)
    except TestbedError as error:
        _say(f"✗ {error}")
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        _say("stopped")
        return 130
    path = results.write("gateway", COMMAND, figures, keep_other_figures=chosen.only is not None)
    _say(str(path))
    page(json.loads(path.read_text())["figures"])
    return 0


def draw(waits: Mapping[str, Waits], predicted: Mapping[str, Waits], folder: Path = results.RESULTS) -> None:
    """Draw measured ratios with their intervals beside the simulated ones."""
    groups: dict[str, dict[str, Estimate]] = {
        f"load {load}, {kind}": {other: found[name].ratio(other) for other in KEYS}
        for name, load in LOADS.items()
        for kind, found in (("measured", waits), ("simulated", predicted))
    }
    plots.ratios(
        folder / "gateway.svg",
        TITLE,
        f"Real Envoy and picker; {ENGINES} stand-in engines each ({COST.profile.model}, {COST.profile.gpu})"
        f" with a real-time queue; {WORKLOAD}. Dots: ratio of mean waits; lines: 95 % over runs.",
        groups,
        x_label="SAL's mean wait divided by the other balancer's",
    )


def page(figures: Mapping[str, float], folder: Path = results.RESULTS) -> None:
    """Write the Markdown page of all figures."""
    cost_rows = [
        [label, *(figures.get(key + suffix) for suffix in cost.BODIES)]
        for label, key in (
            ("added at p50, one connection (ms)", "added_p50_ms"),
            ("added at p99, one connection (ms)", "added_p99_ms"),
            (f"added at p50, {cost.STEADY:g} requests/s (ms)", "steady_added_p50_ms"),
            (f"added at p99, {cost.STEADY:g} requests/s (ms)", "steady_added_p99_ms"),
            (f"requests/s, {cost.CONNECTIONS} connections", "requests_per_second"),
            ("the same, plain Envoy", "plain_envoy_requests_per_second"),
            ("picker's CPU per request (us)", "picker_cpu_us_per_request"),
            ("Envoy's CPU per request (us)", "envoy_cpu_us_per_request"),
            ("the same, plain Envoy (us)", "plain_envoy_cpu_us_per_request"),
        )
    ]
    pick_rows = [
        [f"{engines}", *(figures.get(f"pick_us_{engines}_engines{suffix}") for suffix in pick_cost.PROMPTS)]
        for engines in pick_cost.ENGINES
    ]
    route_rows = [
        [f"{number}", *(figures.get(f"envoy_us_{number}_services{suffix}") for suffix in route_cost.REQUESTS)]
        for number in route_cost.SERVICES
    ]
    wait_rows = [
        [
            balancer,
            *(
                figures.get(f"{kind}wait_{what}_{key}_{load}")
                for load in LOADS
                for kind, what in (("", "mean_ms"), ("", "ratio"), ("simulated_", "ratio"))
            ),
        ]
        for balancer, key in ((name, KEYS.get(name, "sal")) for name in BALANCERS)
    ]
    wait_header = [
        f"{head}, load {load}" for load in LOADS.values() for head in ("wait (ms)", "SAL / it", "simulated")
    ]
    markdown.page(
        "gateway",
        "The real gateway, measured",
        "Envoy with the real picker beside plain Envoy, in the same run, on loopback. Load generator, Envoys,"
        " picker and engines share the machine. The picker reads bodies and never rewrites one.",
        markdown.table(["", *(f"{size // 1000} kB prompt" for size in cost.BODIES.values())], cost_rows),
        "## One pick of SAL",
        "Median microseconds within the picker, by how many engines there are to choose from.",
        markdown.table(["engines", *pick_cost.PROMPTS.values()], pick_rows),
        "## Streams that stepped back",
        f"{going_on.STREAMS:,} streams wait in the relay; then all of {going_on.ENGINES} engines have room."
        f" From one stream's going on to the next's: {figures.get('going_on_ms', 0):g} ms in the mean,"
        f" {figures.get('going_on_p99_ms', 0):g} ms at p99.",
        "## Finding a route",
        "Envoy's CPU per request in microseconds, by how many services it serves; requests are for the last.",
        markdown.table(["services", "named in the body", "named in the path"], route_rows),
        "## Queue waits by balancer",
        f"{ENGINES} engines per balancer. The engines are stand-ins: a first-come first-served queue with"
        f" chunked prefill in real time, steps as long as the published cost model of {COST.profile.model} on"
        f" {COST.profile.gpu} says, load told through the sidecar's own report and stream. Requests:"
        f" {WORKLOAD}. Load is a share of what the engines were measured to do.",
        markdown.table(["balancer", *wait_header], wait_rows),
        markdown.picture(folder / "gateway.svg", TITLE),
        simulated=False,
        folder=folder,
    )


def _say(line: str) -> None:
    print(line, flush=True)
