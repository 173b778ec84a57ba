"""Services that share GPUs by turns, simulated: `python -m e2e.bench.sharing`.

Each group of services on the same GPUs, in each way; means over seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from e2e.bench.report import markdown, results
from e2e.bench.report.markdown import Cell
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.pool import Figures
from e2e.bench.sharing import cases
from e2e.bench.sharing.cases import GROUPS, REPORTED, SEEDS, WAYS, Group, SharingCase

COMMAND = "python -m e2e.bench.sharing"
OURS = "FairShare"
NAMES = {
    "dedicated": "GPUs of its own for each",
    "switched": "whole models switched",
    "time_sliced": "GPUs in time slices, no turns",
    "FairShare": "turns, FairShare",
    "DoublingBudget": "turns, DoublingBudget",
    "oldest_first": "turns in order of arrival",
    "in_rotation": "turns, round robin",
    "by_level": "turns, feedback queue",
}
FELT = ("norm_latency_p99", "ttft_mean", "tpot_mean", "e2e_mean", "e2e_p99", "wait_max")
METRICS = ("norm_latency", "norm_latency_p99", "norm_latency_worst_service", "attainment", *REPORTED)


@dataclass(frozen=True, slots=True)
class Study:
    """What was measured."""

    found: Mapping[SharingCase, Figures]

    def mean(self, group: Group, way: str, rate: float, metric: str) -> float:
        """Return the mean of a metric over seeds."""
        runs = (self.found[SharingCase(group, way, rate, seed)] for seed in range(SEEDS))
        return fmean(float(run[metric]) for run in runs)

    def ratio(self, group: Group, other: str, rate: float, metric: str = "norm_latency") -> float:
        """Return FairShare's mean over that of another way."""
        return self.mean(group, OURS, rate, metric) / self.mean(group, other, rate, metric)


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(options: Options) -> None:
    """Simulate what is missing, then write figures and page."""
    if options.quick:
        cases.measure(
            [SharingCase(GROUPS[0], way, 10, 0) for way in WAYS[:4]], "sharing, quick", options.workers
        )
        return
    study = Study(cases.measure(cases.everything(), "sharing", options.workers))
    print(results.write("sharing", COMMAND, figures(study), simulated=True, folder=options.folder))
    print(markdown.page("sharing", "Services that share GPUs", page(study), folder=options.folder))


def figures(study: Study) -> dict[str, float]:
    """Return what `sharing.json` holds: ratios of FairShare to each other way; below 1 it is better.

    `high`: at a group's highest rate; without a group's name, the worst of all groups.
    """
    made: dict[str, float] = {}
    for group in GROUPS:
        for rate in group.rates:
            for way in WAYS:
                if way != OURS:
                    name = f"{group.key}_{rate:g}"
                    made[f"norm_latency_ratio_{way}_{name}"] = study.ratio(group, way, rate)
        for metric in FELT:
            for way in ("dedicated", "time_sliced", "in_rotation"):
                made[f"{metric}_ratio_{way}_{group.key}_high"] = study.ratio(
                    group, way, group.rates[-1], metric
                )
        for way in WAYS:
            made[f"attainment_{way}_{group.key}_high"] = study.mean(group, way, group.rates[-1], "attainment")
    made["norm_latency_ratio_dedicated_high"] = max(
        study.ratio(group, "dedicated", group.rates[-1]) for group in GROUPS
    )
    for key, others in {
        "any": [way for way in WAYS if way != OURS],
        "turns": [way for way in cases.TURNS if way != OURS],
        "dedicated": ["dedicated"],
    }.items():
        made[f"worst_ratio_{key}"] = max(
            study.ratio(group, way, rate) for group in GROUPS for rate in group.rates for way in others
        )
    for key, way in (("ablation_f", "oldest_first"), ("ablation_m", "by_level")):
        made[key] = max(study.ratio(group, way, rate) for group in GROUPS for rate in group.rates)
    return {key: round(value, 3) for key, value in made.items()}


def page(study: Study) -> str:
    """Write the page: every metric of every way, for each group and rate."""
    note = (
        "Normalised latency: E2E over the mean time that the service's requests take alone on its own GPU "
        "(worst service: that of the service that has the most). Attained: within "
        f"{cases.SLO_SCALE} times what the request takes alone. Gap: a request's longest pause between two "
        f"tokens. All else in seconds; means over {SEEDS} seeds. Arrivals are ServeGen's, which stand in for "
        "the paper's Azure Functions. KV is split in fixed shares; FCFS inside engines, but with the "
        "feedback queue, which is in both."
    )
    parts = [note]
    for group in GROUPS:
        parts.append(f"## {group.name[0].upper()}{group.name[1:]}; {group.gpus} H100")
        header = ("requests/s", "way", *(metric.replace("_", " ") for metric in METRICS))
        rows: list[Sequence[Cell]] = [
            (
                f"{rate:g}",
                NAMES[way],
                *(f"{study.mean(group, way, rate, metric):.3g}" for metric in METRICS),
            )
            for rate in group.rates
            for way in WAYS
        ]
        parts.append(markdown.table(header, rows))
    return "\n\n".join(parts)
