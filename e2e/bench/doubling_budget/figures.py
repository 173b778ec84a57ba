"""DoublingBudget against stock vLLM and a skip-join feedback queue on one simulated engine.

Stock and DoublingBudget are run on engines with default settings; both, and the feedback queue, on engines
that were tuned for each with the same effort, on requests that are judged nowhere. Ratios are over seeds,
paired; below 1 DoublingBudget is better.
"""

from dataclasses import dataclass

from e2e.bench.doubling_budget import cases
from e2e.bench.report import intervals
from e2e.bench.report.intervals import Estimate
from e2e.bench.runs import comparison, tuning
from e2e.bench.runs.comparison import Found
from e2e.bench.runs.engine import Case
from e2e.bench.runs.setting import Setting
from e2e.bench.runs.tuning import Tunings

LATENCIES = {
    "mean TTFT": "ttft_mean",
    "p99 TTFT": "ttft_p99",
    "mean TPOT": "tpot_mean",
    "p99 TPOT": "tpot_p99",
    "mean E2E": "e2e_mean",
    "p99 E2E": "e2e_p99",
    "longest wait": "wait_max",
}
PAIRS = {
    "": ("DoublingBudget", "stock"),
    "_tuned": ("tuned DoublingBudget", "tuned stock"),
    "_of_mlfq": ("tuned DoublingBudget", "tuned MLFQ"),
}
"""What is compared, by how the figure's name ends."""


@dataclass(frozen=True, slots=True)
class Study:
    """What the study measured."""

    found: Found
    tunings: Tunings

    def runs(self, setting: Setting, load: float, kind: str) -> list[Case]:
        """Return one run for each seed of one of `cases.kinds`."""
        return comparison.runs(setting, load, cases.kinds(setting, self.tunings)[kind])

    def ratio(self, setting: Setting, load: float, figure: str, pair: str = "") -> Estimate:
        """Return the ratio of a latency of one of `PAIRS`."""
        ours, theirs = (self.runs(setting, load, kind) for kind in PAIRS[pair])
        return comparison.ratio(self.found, ours, theirs, figure)


def figures(study: Study) -> dict[str, float]:
    """Return what `doubling_budget.json` holds."""
    made: dict[str, float] = {}
    for setting in cases.SETTINGS:
        for load in setting.loads:
            for figure in LATENCIES.values():
                for end in PAIRS:
                    name = f"{figure}_ratio_{setting.at(load)}{end}"
                    made |= intervals.keyed(name, study.ratio(setting, load, figure, end))
    for figure in ("ttft_mean", "e2e_mean", "e2e_p99"):
        made[f"{figure}_worst_ratio"] = max(
            study.ratio(setting, load, figure).value for setting in cases.SETTINGS for load in setting.loads
        )
        made[f"grid_worst_{figure}"] = max(doubts(study.found, figure))
    made |= tuning.figures(study.tunings)
    return {key: round(value, 3) for key, value in made.items()}


def doubts(found: Found, figure: str) -> list[float]:
    """Return DoublingBudget / stock at each corner of the cost model's doubt."""
    return [comparison.ratio(found, [ours], [stock], figure).value for ours, stock in cases.doubted()]
