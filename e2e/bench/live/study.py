"""Measure what policies gain on real vLLM engines, beside what was simulated: `python -m e2e.bench.live`.

Each workload has three servers that take turns: stock vLLM, stock vLLM with a tuned step budget, and one with
our plugin, whose policy changes from run to run. First a cost model is fitted to the steps of a server with
the plugin; with it the step budgets are searched, for stock and policies alike. Then the capacity of the
tuned server is measured. Before each run it is simulated, with steps as slow as they were in the last runs,
and the prediction written down. All is kept as it comes: the same command goes on where it was stopped. One
hour to two on two cores that do nothing else; `--device cuda` takes a GPU.
"""

import argparse
import asyncio
import logging
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from e2e.bench.live import calibration, cases, figures, forecast, journal, measure, page, step_table
from e2e.bench.live.calibration import Fitted
from e2e.bench.live.cases import DEFAULT, DEVICES, FIXED_BUDGETS, TUNED, Contestant, Device, Run, Workload
from e2e.bench.live.figures import Found
from e2e.bench.live.journal import Entry, Journal
from e2e.bench.live.measure import PLUGIN
from e2e.bench.live.servers import Engines, open_engines
from e2e.bench.live.step_ring import steps_of
from e2e.bench.report import results
from e2e.bench.report.results import RESULTS
from e2e.bench.runs.command_line import describe
from headrace_engine.contracts import PolicyDocument
from headrace_engine.sim.workloads.arrival import Arrival

COMMAND = "python -m e2e.bench.live"
RECENT = 5  # runs


def main() -> int:
    """Measure, and write figures and page; with `--quick` neither."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end too
    chosen, quick = read(describe(__doc__))
    device = cases.with_defaults(chosen)
    logging.getLogger("vllm").setLevel(logging.ERROR)  # what it warns of does not matter to simulations
    with tempfile.TemporaryDirectory(prefix="headrace-live-") as scratch:
        kept = journal.place(device, Path(scratch)) if quick else journal.place(device)
        print(f"kept in {kept}", file=sys.stderr)
        study = Study(device, Journal(kept), Console(stderr=True))
        try:
            with open_engines(device, Path(scratch)) as engines:
                study.measure(engines)
        except KeyboardInterrupt:
            print("\nstopped; the same command goes on from here", file=sys.stderr)
            return 130
        report(study, Path(scratch) / "results" if quick else RESULTS)
    return 0


def read(parser: argparse.ArgumentParser) -> tuple[Device, bool]:
    """Read the command line: the device, and whether it is the tiny version."""
    parser.add_argument("--device", choices=sorted(DEVICES), default="cpu")
    parser.add_argument("--quick", action="store_true", help="a tiny version; stores no result")
    chosen = parser.parse_args()
    device = DEVICES[chosen.device]
    return (tiny(device) if chosen.quick else device), chosen.quick


def tiny(device: Device) -> Device:
    """Return the device with one workload, one load and two short repetitions."""
    return replace(
        device,
        workloads=(replace(device.workloads[0], seconds=4.0, warm_step_tokens=256),),
        loads=(0.9,),
        repetitions=2,
        calibration=1.0,
        capacity=4.0,
    )


def report(study: "Study", folder: Path) -> None:
    """Write figures and page."""
    found = study.found()
    name = "live" if study.device.name == "cpu" else f"live_{study.device.name}"
    command = COMMAND if study.device.name == "cpu" else f"{COMMAND} --device {study.device.name}"
    settled = {**study.settled(), **figures.all_figures(found)}
    path = results.write(name, command, settled, folder=folder)
    print(page.write(name, found, settled, folder).read_text())
    print(path)


def recent_slowness(kept: Journal) -> float:
    """Return how many times as long as fitted steps take now: as in the last runs that tell of their steps.

    A machine that others use too is faster and slower from minute to minute.
    """
    known = [float(entry["slowness"]) for entry in kept.read("run").values() if "slowness" in entry]
    return statistics.median([1.0, *known][-RECENT:])


@dataclass(slots=True)
class Study:
    """One device's study, as far as its journal has it."""

    device: Device
    journal: Journal
    console: Console

    def measure(self, engines: Engines) -> None:
        """Do what is not done yet."""
        with self._progress() as progress:
            every = [run for each in self.device.workloads for run in cases.plan(self.device, each.name)]
            done = len(every) - len(figures.left(self.device, self.journal.read("run")))
            task = progress.add_task("runs", total=len(every), completed=done)
            for workload in self.device.workloads:
                left = figures.left(self.device, self.journal.read("run"))
                runs = [run for run in left if run.workload == workload.name]
                if runs:
                    fitted = self._start(engines, workload)
                    for run in runs:
                        progress.update(task, description=journal.key(run))
                        self._run(engines, fitted, workload, run)
                        progress.advance(task)

    def found(self) -> Found:
        """Return the figures of all finished runs."""
        return Found(self.device, self.journal.read("run"), self.journal.read("prediction"))

    def settled(self) -> dict[str, float]:
        """Return what was found before the runs: cost model, budgets, capacities."""
        made = {
            f"{part}_{key}_ms": 1000 * value
            for part, numbers in self.journal.read("fit").get("", {}).items()
            for key, value in numbers.items()
        }
        for name, tuned in self.journal.read("tuned").items():
            for contestant, each in tuned.items():
                made[f"step_budget_{contestant}_{name}"] = each["budget"]
                if each["watermark"]:
                    made[f"watermark_percent_{contestant}_{name}"] = 100 * each["watermark"]
        for name, entry in self.journal.read("capacity").items():
            made[f"capacity_{name}_per_second"] = round(entry["rate"], 3)
        return made

    def _start(self, engines: Engines, workload: Workload) -> Fitted:
        """Start the servers of a workload; what was fitted to the plugin's."""
        if any(blocks != workload.blocks for blocks, *_ in engines.asked.values()):
            engines.stop()  # all at once: with the kernels of all their steps they need gigabytes each
        self._start_one(engines, workload, Contestant(PLUGIN, None), PolicyDocument("FCFS"))
        fitted = self._fitted(engines)
        for name in (DEFAULT, TUNED):
            self._start_one(engines, workload, self._contestant(fitted, workload, name))
        return fitted

    def _start_one(
        self,
        engines: Engines,
        workload: Workload,
        asked: Contestant,
        policy: PolicyDocument | None = None,
    ) -> None:
        """Start a server, and have it make each step that it may have to make, up to those that are rare."""
        self.console.print(f"{workload.name}: starting {asked.name}")
        if engines.start(asked.name, workload.blocks, asked.budget, asked.watermark, policy):
            largest = asked.budget or self.device.settings.max_num_batched_tokens
            asyncio.run(measure.warm_up(engines, asked.name, min(largest, workload.warm_step_tokens)))

    def _fitted(self, engines: Engines) -> Fitted:
        """Fit how long steps take, unless that is known: it is never fitted anew once runs were predicted."""
        if not self.journal.read("fit"):
            self.console.print("calibrating")
            found = asyncio.run(calibration.fit(engines))
            self.journal.write("fit", "", calibration.entry(found))
            self.console.print(str(calibration.entry(found)))
        return calibration.read(self.journal.read("fit")[""])

    def _contestant(self, fitted: Fitted, workload: Workload, name: str) -> Contestant:
        """Return one of CONTESTANTS with its settings, which are searched unless they are known."""
        if workload.name not in self.journal.read("tuned"):
            rate = forecast.SEARCHED_LOAD * forecast.simulated_capacity(self.device, fitted, workload)
            made = {
                each: {"budget": found.budget, "watermark": found.watermark}
                for each in FIXED_BUDGETS
                for found in [forecast.tune(self.device, fitted, workload, each, rate)]
            }
            self.journal.write("tuned", workload.name, made)
            self.console.print(f"{workload.name}: tuned {made}")
        return Contestant(name, **self.journal.read("tuned")[workload.name].get(name, {}))

    def _capacity(self, engines: Engines, workload: Workload) -> float:
        """Measure the tuned server's capacity, unless it is known."""
        if workload.name not in self.journal.read("capacity"):
            rate = asyncio.run(measure.capacity(engines, TUNED, workload))
            self.journal.write("capacity", workload.name, {"rate": rate})
            self.console.print(f"{workload.name}: {rate:.2f} requests a second")
        return float(self.journal.read("capacity")[workload.name]["rate"])

    def _run(self, engines: Engines, fitted: Fitted, workload: Workload, run: Run) -> None:
        """Predict a run, write that down, then make the run."""
        rate = run.load * self._capacity(engines, workload)
        contestant = self._contestant(fitted, workload, run.contestant)
        arrivals = workload.arrivals(rate, run.repetition)
        key, policy = journal.key(run), contestant.document(workload)
        name = PLUGIN if policy else contestant.name
        if key not in self.journal.read("prediction"):
            factor = recent_slowness(self.journal)
            predicted = forecast.predict(self.device, fitted.slower(factor), workload, contestant, arrivals)
            self.journal.write("prediction", key, {**predicted, "slowness": factor})
        if policy:
            engines.apply(name, policy)
        before, began = engines.disturbed_seconds(name), time.monotonic()
        measured = asyncio.run(self._measure(engines, fitted, workload, arrivals, name, key))
        share = (engines.disturbed_seconds(name) - before) / (time.monotonic() - began)
        self.journal.write("run", key, {**measured, "disturbed": max(0.0, share)})

    async def _measure(  # noqa: PLR0917
        self,
        engines: Engines,
        fitted: Fitted,
        workload: Workload,
        arrivals: Sequence[Arrival],
        name: str,
        key: str,
    ) -> Entry:
        """Make a run; where the plugin tells of its steps, how slow they were with it."""
        asking = measure.asker(engines, name)
        alone = partial(forecast.alone, self.device, fitted)
        if name != PLUGIN:
            return await measure.run(asking, workload, arrivals, key, alone)
        async with steps_of(engines.servers[name]) as steps:
            found = await measure.run(asking, workload, arrivals, key, alone)
        return {**found, "slowness": step_table.slowness(fitted.cost, steps)}

    def _progress(self) -> Progress:
        columns = (TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn())
        return Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=self.console)
