"""Slices and moves on three real engines: `python -m e2e.bench.slices_live [--repetitions 4]`.

The study `slices`, a sixteenth of its size: where it gains most, and where it loses most. Engines of a small
model on CPUs get its lengths, KV cache and slices, each divided by 16. The gateway is the real one. Each
repetition serves the same requests once with neither slices nor moves and once with both, and simulates them
too, with steps fitted to such an engine, as slow as they are while all three are busy.
"""

import asyncio
import logging
import random
import signal
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
from rich.console import Console

from e2e.bench.live import calibration, cases, measure, step_table
from e2e.bench.live.calibration import Fitted
from e2e.bench.live.cases import DEVICES, Device
from e2e.bench.live.measure import PLUGIN
from e2e.bench.live.servers import NAME, open_engines
from e2e.bench.live.step_ring import steps_of
from e2e.bench.report import intervals, results
from e2e.bench.runs import workloads
from e2e.bench.runs.command_line import describe
from e2e.bench.slices_live.three_engines import ADDRESSES, PLAIN, ThreeEngines, open_three
from headrace_engine.contracts import GatewayConfig, Slice
from headrace_engine.sim.workloads import shape
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.sim.workloads.shape import Scale
from headrace_gateway.simulated import SimulatedGateway, SimulatedRelay

COMMAND = "python -m e2e.bench.slices_live"
PART = 16  # of the study's lengths, KV cache and slices
LONGEST = 8192 // PART
BLOCKS = 65_536 // PART // DEVICES["cpu"].settings.block_size
SLICE = Slice(512 // PART, hand_back=True)
REQUESTS = 1200  # of a run
WARM_UP = 0.4  # share of the requests, as in the study
WARM_STEP_TOKENS = 128
BUDGETS = (64, 128, 256, 512)  # tokens a step that steps are fitted with
SHAPE = {  # of the model: three of them take 0.1 s for a step with all that fits into their KV
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
}
METRICS = ("e2e_mean", "e2e_p50", "e2e_p95", "ttft_mean", "tpot_mean", "gap_p95", "ttft_max")


@dataclass(frozen=True, slots=True)
class Setting:
    """One workload at one load. `key`: in figures. `load`: of what the engines sustain without slices."""

    key: str
    workload: str
    load: float

    def requests(self, seed: int) -> list[Arrival]:
        """Make the requests of a run, at times that are still to be stretched to its load."""
        scale = Scale(PART, PART, LONGEST, LONGEST)
        recorded = workloads.make(self.workload, REQUESTS, 1.0, seed, PART * (LONGEST - 1))
        scaled = [replace(scale(each), at=each.at) for each in recorded]
        return [replace(each, output_tokens=max(2, each.output_tokens)) for each in scaled]


SETTINGS = (
    Setting("longtail_kv_130", "servegen-deepseek-r1", 1.3),
    Setting("conversation_kv", "conversation", 0.9),
)


class Seen(NamedTuple):
    """One request as its client sees it, seconds."""

    ttft: float
    tpot: float
    gap: float
    e2e: float


Figures = Mapping[str, float]


def main() -> int:
    """Measure and write the figures."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end too
    parser = describe(__doc__)
    parser.add_argument("--repetitions", type=int, default=4, help="of each case (default %(default)s)")
    chosen = parser.parse_args()
    logging.getLogger("vllm").setLevel(logging.ERROR)  # what it warns of does not matter to simulations
    figures = measure_all(chosen.repetitions, Console(stderr=True))
    print(results.write("slices_live", f"{COMMAND} --repetitions {chosen.repetitions}", figures))
    return 0


def measure_all(repetitions: int, console: Console) -> dict[str, float]:
    """Fit how long steps take, then make the runs of all settings."""
    device = cases.with_defaults(DEVICES["cpu"])
    settings = replace(device.settings, num_blocks=BLOCKS, max_model_len=LONGEST)
    device = replace(device, model={**device.model, **SHAPE}, settings=settings, budgets=BUDGETS)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="slices-live-") as folder:
        for name in ("engines", "gateway"):
            (Path(folder) / name).mkdir()
        with open_engines(device, Path(folder) / "engines") as engines:
            engines.start(PLUGIN, BLOCKS, policy=PLAIN)
            console.print("an engine warms up, and is fitted")
            asyncio.run(measure.warm_up(engines, PLUGIN, WARM_STEP_TOKENS))
            fitted = asyncio.run(calibration.fit(engines))
            engines.stop()
            with open_three(engines, Path(folder) / "gateway") as three:
                asyncio.run(start(three, console))
                for setting in SETTINGS:
                    figures |= measure_setting(three, setting, fitted, repetitions, console)
    return {key: round(value, 4) for key, value in figures.items()}


async def start(three: ThreeEngines, console: Console) -> None:
    """Start engines and gateway, and have each engine make every step once."""
    await three.start()
    for address in ADDRESSES:
        console.print(f"{address} warms up")
        await measure.warm_up(three.engines, address, WARM_STEP_TOKENS)


def measure_setting(
    three: ThreeEngines, setting: Setting, fitted: Fitted, repetitions: int, console: Console
) -> dict[str, float]:
    """Make the runs of a setting, and return its figures."""
    measured: dict[bool, list[Figures]] = {False: [], True: []}
    simulated: dict[bool, list[Figures]] = {False: [], True: []}
    moved = 0.0
    for seed in range(repetitions):
        requests = setting.requests(seed)
        sustained, slowness = asyncio.run(burst(three, fitted, requests, f"burst {setting.key} {seed}"))
        console.print(f"{setting.key}: {sustained:.2f} requests/s, steps {slowness:.2f} times as long")
        arrivals, slower = shape.at_rate(requests, setting.load * sustained), slow_down(fitted, slowness)
        for both in random.Random(f"order {setting.key} {seed}").sample([False, True], 2):
            simulated[both].append(simulate(three.engines.device, slower, arrivals, seed, both=both))
            three.apply(SLICE if both else None)
            before = three.testbed.relay_metric("headrace_relay_streams_moved_total")
            label = f"{setting.key} {seed}, {'both' if both else 'neither'}"  # of prompts: no two are alike
            measured[both].append(asyncio.run(serve(three, arrivals, label)))
            moved += three.testbed.relay_metric("headrace_relay_streams_moved_total") - before
            console.print(f"{label}: {_told(measured[both][-1])}")
            console.print(f"  simulated: {_told(simulated[both][-1])}")
    figures = {f"moved_{setting.key}": moved / repetitions}
    for metric in METRICS:
        name = metric.replace("e2e", "jct")
        ratio = f"{name}_ratio_{setting.key}"
        figures |= intervals.keyed(ratio, _ratio(measured, metric))
        figures[f"simulated_{ratio}"] = _ratio(simulated, metric).value
        for both, which in ((False, "neither"), (True, "both")):
            figures[f"{name}_seconds_{setting.key}_{which}"] = fmean(each[metric] for each in measured[both])
    return figures


def _ratio(found: Mapping[bool, Sequence[Figures]], metric: str) -> intervals.Estimate:
    return intervals.ratio(*([each[metric] for each in found[both]] for both in (True, False)))


def _told(figures: Figures) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in figures.items())


async def burst(
    three: ThreeEngines, fitted: Fitted, requests: Iterable[Arrival], label: str
) -> tuple[float, float]:
    """Have requests wait all at once, for engines without slices.

    Returns the requests/s that the engines answer together, and how many times as long as fitted their steps
    take while all three are busy.
    """
    three.apply(None)
    waiting = [replace(each, at=0.0) for each in requests]
    async with AsyncExitStack() as stack:
        of_each = [
            await stack.enter_async_context(steps_of(server)) for server in three.engines.servers.values()
        ]
        samples = await three.asker.open_loop(waiting, label)
    slowness = fmean(step_table.slowness(fitted.cost, steps) for steps in of_each)
    return measure.sustained(sorted(sample.e2e for sample in samples)), slowness


def slow_down(fitted: Fitted, factor: float) -> Fitted:
    """Return the fit of an engine that has the core so many times as seldom to itself."""
    host = replace(fitted.host, per_step=factor * fitted.host.per_step)
    return replace(fitted.slower(factor), host=host)


async def serve(three: ThreeEngines, arrivals: Sequence[Arrival], label: str) -> Figures:
    """Send the requests through the gateway, and return the figures of the run."""
    samples = await three.asker.open_loop(arrivals, label)
    return of_run(Seen(each.ttft, each.tpot, each.max_itl, each.e2e) for each in samples)


def simulate(
    device: Device, fitted: Fitted, arrivals: Sequence[Arrival], seed: int, *, both: bool
) -> Figures:
    """Simulate the run, and return its figures."""
    # vLLM takes ten seconds to import.
    from headrace_engine.sim.engine import SimulatedEngine  # noqa: PLC0415
    from headrace_engine.sim.fleet import simulate_fleet  # noqa: PLC0415

    document = replace(PLAIN, slice=SLICE if both else None)
    engines = [
        SimulatedEngine(
            device.settings, fitted.cost, document, number=number, listening=True, host=fitted.host
        )
        for number in range(len(ADDRESSES))
    ]
    boards = [engine.link for engine in engines if engine.link is not None]
    gateway = SimulatedGateway(GatewayConfig("bench", NAME, (NAME,), NAME), boards, seed)
    relay = SimulatedRelay(gateway, seed) if both else None
    run = simulate_fleet(arrivals, engines, gateway, relay=relay, seed=seed)
    seen = []
    for outcome in run.outcomes:
        assert outcome is not None
        ttft, tpot, e2e = outcome.ttft, outcome.tpot, outcome.e2e
        assert ttft is not None
        assert tpot is not None
        assert e2e is not None
        seen.append(Seen(ttft, tpot, outcome.longest_gap, e2e))
    return of_run(seen)


def of_run(seen: Iterable[Seen]) -> Figures:
    """Summarise the requests of a run, in order of arrival, but those that came first."""
    every = list(seen)
    counted = np.array(every[int(WARM_UP * len(every)) :])
    figures: dict[str, float] = {}
    for number, name in enumerate(Seen._fields):
        values = counted[:, number]
        figures[f"{name}_mean"], figures[f"{name}_max"] = float(values.mean()), float(values.max())
        for percent in (50, 95):
            figures[f"{name}_p{percent}"] = float(np.percentile(values, percent))
    return {metric: figures[metric] for metric in METRICS}
