"""What runs come to: figures of one run, ratios paired over repetitions, and how far predictions were off."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from e2e.bench.live import journal
from e2e.bench.live.cases import CONTESTANTS, TUNED, Device, Run, plan, tail
from e2e.bench.live.journal import Entry
from e2e.bench.report import intervals
from e2e.bench.report.intervals import Estimate

RATIOS = {
    "ttft": "ttft_mean",
    "e2e": "e2e_mean",
    "tpot": "tpot_mean",
    "wait": "ttft_max",
    "goodput": "goodput",
}
"""Names in `live.json`, and the figure of a run that each compares."""
JUDGED = ("ttft_mean", "e2e_mean")  # by which predictions are judged


@dataclass(frozen=True, slots=True)
class Served:
    """One request as its client saw it; seconds. `alone`: what it would take on an idle engine."""

    at: float
    ttft: float
    tpot: float
    e2e: float
    alone: float


def of_run(served: Iterable[Served], warm_up: float, scale: float) -> dict[str, float]:
    """Summarise a run's requests but those that came in the warm-up.

    `met`: share that ended within `scale` times what they take alone; `goodput`: such requests a second, of
    those that came, with half a request instead of none. Raises ValueError if none is left.
    """
    counted = [each for each in served if each.at >= warm_up]
    if not counted:
        raise ValueError(f"no request came after the warm-up of {warm_up:g} s")
    met = sum(each.e2e <= scale * each.alone for each in counted)
    ttfts = [each.ttft for each in counted]
    return {
        "requests": len(counted),
        "ttft_mean": statistics.fmean(ttfts),
        "ttft_max": max(ttfts),
        "tpot_mean": statistics.fmean(each.tpot for each in counted),
        "e2e_mean": statistics.fmean(each.e2e for each in counted),
        "met": met / len(counted),
        "goodput": max(met, 0.5) / (max(each.at for each in counted) - warm_up),
    }


@dataclass(frozen=True, slots=True)
class Found:
    """Figures of all finished runs by `journal.key`: measured, and predicted beforehand."""

    device: Device
    measured: Mapping[str, Entry]
    predicted: Mapping[str, Entry]

    def cells(self) -> list[tuple[str, float]]:
        """List workload and load of what was run."""
        return [(each.name, load) for each in self.device.workloads for load in self.device.loads]

    def complete(self, workload: str, load: float) -> list[int]:
        """List the repetitions that every contestant has finished."""
        return [
            number
            for number in range(self.device.repetitions)
            if all(
                journal.key(Run(workload, load, number, contestant)) in self.measured
                for contestant in CONTESTANTS
            )
        ]

    def values(
        self, kind: Mapping[str, Entry], contestant: str, workload: str, load: float, figure: str
    ) -> list[float]:
        """Return a figure of each complete repetition."""
        runs = [Run(workload, load, number, contestant) for number in self.complete(workload, load)]
        return [float(kind[journal.key(run)][figure]) for run in runs]

    def ratio(
        self, kind: Mapping[str, Entry], contestant: str, workload: str, load: float, figure: str
    ) -> Estimate:
        """Estimate contestant / tuned stock, paired by repetition."""
        ours, theirs = (self.values(kind, each, workload, load, figure) for each in (contestant, TUNED))
        return intervals.ratio(ours, theirs)


def all_figures(found: Found) -> dict[str, float]:
    """Return what `live.json` says: ratios with intervals, predicted beside them, and the errors."""
    figures: dict[str, float] = {}
    for workload, load in found.cells():
        if not found.complete(workload, load):
            continue
        for contestant in CONTESTANTS:
            where = f"{contestant}_{workload}_{tail(load)}"
            figures[f"met_percent_{where}"] = 100 * statistics.fmean(
                found.values(found.measured, contestant, workload, load, "met")
            )
            if contestant == TUNED:
                continue
            for name, figure in RATIOS.items():
                ratio = found.ratio(found.measured, contestant, workload, load, figure)
                predicted = found.ratio(found.predicted, contestant, workload, load, figure)
                figures |= intervals.keyed(f"{name}_ratio_{where}", ratio)
                figures[f"predicted_{name}_ratio_{where}"] = predicted.value
    figures |= {**prediction_errors(found), **disturbance(found)}
    return {key: round(value, 4) for key, value in figures.items()}


def disturbance(found: Found) -> dict[str, float]:
    """Return the share of its core that an engine lost to others while it was measured, in percent."""
    shares = [100 * float(entry["disturbed"]) for entry in found.measured.values()]
    if not shares:
        return {}
    return {"disturbed_percent_median": statistics.median(shares), "disturbed_percent_worst": max(shares)}


def prediction_errors(found: Found) -> dict[str, float]:
    """Return |predicted / measured - 1| in percent, of the means over repetitions: median and worst.

    Over every workload, load and contestant, and over TTFT and E2E together; then over each of the two.
    """
    errors = {
        figure: [
            error
            for workload, load in found.cells()
            if found.complete(workload, load)
            for contestant in CONTESTANTS
            for error in [mean_error(found, contestant, workload, load, figure)]
        ]
        for figure in JUDGED
    }
    together = [error for each in errors.values() for error in each]
    if not together:
        return {}
    made = {
        "prediction_error_median_percent": statistics.median(map(abs, together)),
        "prediction_error_worst_percent": max(map(abs, together)),
    }
    for figure, each in errors.items():
        name = figure.removesuffix("_mean")
        made[f"prediction_error_{name}_median_percent"] = statistics.median(map(abs, each))
        made[f"prediction_bias_{name}_median_percent"] = statistics.median(each)
    return made


def mean_error(found: Found, contestant: str, workload: str, load: float, figure: str) -> float:
    """Return by how much the predicted mean over repetitions is off the measured, in percent."""
    predicted, measured = (
        statistics.fmean(found.values(kind, contestant, workload, load, figure))
        for kind in (found.predicted, found.measured)
    )
    return 100 * (predicted / measured - 1)


def left(device: Device, done: Mapping[str, Entry]) -> Sequence[Run]:
    """List the runs that are not done yet, in order."""
    runs = [run for workload in device.workloads for run in plan(device, workload.name)]
    return [run for run in runs if journal.key(run) not in done]
