"""One feature of the product with and without: the same simulated fleets, seed by seed, figures and page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from e2e.bench.report import markdown, results
from e2e.bench.report.markdown import Cell
from e2e.bench.runs.command_line import Options
from e2e.bench.runs.fleet import FleetCase, measure
from e2e.bench.runs.pool import Figures

SEEDS = 3
METRICS = (
    "e2e_mean",
    "e2e_p50",
    "e2e_p95",
    "e2e_p99",
    "ttft_mean",
    "ttft_p95",
    "tpot_mean",
    "gap_p99",
    "wait_max",
)
WORST = ("e2e_mean", "ttft_mean")  # of what the feature shall do no harm to elsewhere
Found = Mapping[FleetCase, Figures]


@dataclass(frozen=True, slots=True)
class Setting:
    """One case of a study, without the feature. `key`: in figures. `elsewhere`: the feature is not for it."""

    key: str
    name: str
    case: FleetCase
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Ablation:
    """A study. `name`: its module's, in `e2e.bench`. `add`: gives a case the feature, called `feature`.

    `counted`: what the page tells beside `METRICS`, as means over seeds.
    """

    name: str
    title: str
    note: str
    feature: str
    add: Callable[[FleetCase], FleetCase]
    settings: Sequence[Setting]
    counted: Sequence[str]

    def run(self, options: Options) -> None:
        """Simulate what is missing, then write figures and page."""
        settings = self.settings
        if options.quick:
            settings = [replace(each, case=replace(each.case, requests=20)) for each in settings[:1]]
        cases = [case for each in settings for feature in (False, True) for case in self.seeds(each, feature)]
        found = measure(cases, self.name, options.workers)
        made, command = self.figures(found, settings), f"python -m e2e.bench.{self.name}"
        print(results.write(self.name, command, made, simulated=True, folder=options.folder))
        page = self.page(found, settings)
        print(markdown.page(self.name, self.title, page, folder=options.folder))

    def seeds(self, setting: Setting, feature: bool) -> list[FleetCase]:
        """List the runs of a setting, with the feature or without."""
        case = self.add(setting.case) if feature else setting.case
        return [replace(case, seed=seed) for seed in range(SEEDS)]

    def figures(self, found: Found, settings: Sequence[Setting]) -> dict[str, float]:
        """Return what the study's result holds: each metric with the feature over the same without."""
        made = {
            f"{metric.replace('e2e', 'jct')}_ratio_{each.key}": self._ratio(found, each, metric)
            for each in settings
            for metric in METRICS
        }
        elsewhere = [each for each in settings if each.elsewhere]
        if elsewhere:
            made["worst_ratio_elsewhere"] = max(
                self._ratio(found, each, metric) for each in elsewhere for metric in WORST
            )
        return {key: round(value, 3) for key, value in made.items()}

    def _ratio(self, found: Found, setting: Setting, metric: str) -> float:
        return self._mean(found, setting, metric, True) / self._mean(found, setting, metric, False)

    def _mean(self, found: Found, setting: Setting, metric: str, feature: bool) -> float:
        return fmean(float(found[case][metric]) for case in self.seeds(setting, feature))

    def page(self, found: Found, settings: Sequence[Setting]) -> str:
        """Write the page: every metric of every setting, with the feature and without."""
        rows: list[Sequence[Cell]] = [
            (
                each.name,
                self.feature if feature else "none",
                *(f"{self._mean(found, each, metric, feature):.3g}" for metric in METRICS),
                *(f"{self._mean(found, each, counted, feature):.0f}" for counted in self.counted),
            )
            for each in settings
            for feature in (False, True)
        ]
        header = ("setting", self.name, *(name.replace("_", " ") for name in (*METRICS, *self.counted)))
        return f"{self.note}\n\n{markdown.table(header, rows)}"
