"""LARRY against stock vLLM on one simulated engine: latencies, goodput, longest waits.

Both are run on engines with default settings, and each on one that was tuned for it, with the same effort
and on requests that are judged nowhere. Ratios are over seeds (segments of a recorded trace), paired.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from e2e.bench.larry import cases
from e2e.bench.larry.cases import LATENCY, TARGET
from e2e.bench.report import intervals
from e2e.bench.report.intervals import Estimate
from e2e.bench.runs import comparison, tuning
from e2e.bench.runs.comparison import Found, values
from e2e.bench.runs.engine import Case
from e2e.bench.runs.setting import Setting
from e2e.bench.runs.tuning import Tunings
from headrace_engine.sim.metrics import Goodput

PAIRS = (("LARRY", "stock", ""), ("tuned LARRY", "tuned stock", "_tuned"))
"""What is compared, and how the figure's name ends."""
BESIDE = (*PAIRS, ("LARRY", "tuned stock", "_default_engine"))


@dataclass(frozen=True, slots=True)
class Study:
    """What the study measured."""

    found: Found
    tunings: Tunings

    def runs(self, setting: Setting, load: float, kind: str) -> list[Case]:
        """Return one run for each seed of one of `cases.kinds`, or of SRPT."""
        named = {**cases.kinds(setting, self.tunings), "SRPT": cases.srpt}
        return comparison.runs(setting, load, named[kind])

    def ratio(
        self,
        setting: Setting,
        load: float,
        figure: str = LATENCY,
        *,
        kind: str = "LARRY",
        against: str = "stock",
    ) -> Estimate:
        """Return the ratio of a latency of `kind` to that of `against`."""
        ours, theirs = (self.runs(setting, load, each) for each in (kind, against))
        return comparison.ratio(self.found, ours, theirs, figure)

    def grows(self, setting: Setting, load: float, kinds: Sequence[str]) -> bool:
        """Tell whether the queue of any of these only grew there."""
        return any(comparison.grows(self.found, self.runs(setting, load, kind)) for kind in kinds)

    def goodputs(self, setting: Setting, kind: str) -> list[Goodput]:
        """Return the goodput, by E2E, of each seed of one of `cases.carrying`."""
        return comparison.goodputs(self.found, setting, TARGET, cases.carrying(setting, self.tunings)[kind])

    def goodput_ratio(self, setting: Setting, kind: str, against: str) -> tuple[Estimate, str]:
        """Return `kind` / `against`, and `>` or `<` where the sweep's ends bound it, `~` where either way."""
        return comparison.ratio_of(self.goodputs(setting, kind), self.goodputs(setting, against))


def figures(study: Study) -> dict[str, float]:
    """Return what `larry.json` holds; ratios rounded to what the simulation can tell."""
    made = {**_latencies(study), **_waits(study), **_goodputs(study)}
    for setting in cases.SETTINGS:
        load = 0.9 if 0.9 in setting.all_loads() and setting not in cases.SHORT_OF_KV else 1.0
        made[f"gain_kept_{setting.at(load)}"] = gain_kept(study, setting, load)
    for figure in ("ttft_mean", "e2e_mean"):
        made[f"worst_{figure}_ratio_to_07"] = worst_at_low_load(study, figure)[0].value
    for name, ratios in doubts(study).items():
        made[f"grid_worst_{name}"] = max(ratios)
    made |= tuning.figures(study.tunings)
    return {key: round(value, 3) for key, value in made.items()}


def _latencies(study: Study) -> dict[str, float]:
    made: dict[str, float] = {}
    for setting in cases.SETTINGS:
        for load in setting.all_loads():
            for kind, against, end in BESIDE:
                name = f"ttft_mean_ratio_{setting.at(load)}{end}"
                made |= intervals.keyed(name, study.ratio(setting, load, kind=kind, against=against))
    return made


def _waits(study: Study) -> dict[str, float]:
    """Return the longest wait: of LARRY, of both tuned, and of the paper's form."""
    made: dict[str, float] = {}
    for setting in cases.SETTINGS:
        for load in setting.all_loads():
            at = setting.at(load)
            compared = [(f"wait_max_ratio_{at}{end}", kind, against) for kind, against, end in PAIRS]
            for name, kind, against in (*compared, (f"wait_max_ratio_paper_{at}", "paper", "stock")):
                waits = study.ratio(setting, load, "wait_max", kind=kind, against=against)
                made |= intervals.keyed(name, waits)
    return made


def _goodputs(study: Study) -> dict[str, float]:
    """Return each ratio with `_bound`: 0 exact, 1 at least, -1 at most; none that could be either."""
    made: dict[str, float] = {}
    for setting in cases.SWEPT:
        for kind, against, end in BESIDE:
            found = study.goodput_ratio(setting, kind, against)
            made |= comparison.keyed(f"goodput_ratio_{setting.key}_{TARGET}{end}", found)
    return made


def gain_kept(study: Study, setting: Setting, load: float) -> float:
    """Return the share of the paper's form's gain in mean TTFT that LARRY keeps, over all seeds.

    Says nothing where the paper's form hardly gains; 1 where it gains exactly nothing.
    """
    stock, ours, paper = (
        sum(values(study.found, study.runs(setting, load, kind), LATENCY))
        for kind in ("stock", "LARRY", "paper")
    )
    return (stock - ours) / (stock - paper) if paper != stock else 1.0


def worst_at_low_load(study: Study, figure: str) -> tuple[Estimate, str]:
    """Return the highest LARRY / stock at loads up to 0.7, both default or both tuned, and where."""
    return max(_at_low_load(study, figure), key=lambda each: each[0].value)


def _at_low_load(study: Study, figure: str) -> Iterator[tuple[Estimate, str]]:
    for setting in cases.SETTINGS:
        for load in (each for each in setting.all_loads() if each <= 0.7):
            for kind, against, end in PAIRS:
                found = study.ratio(setting, load, figure, kind=kind, against=against)
                yield found, f"{setting.name}, load {load:g}{', both tuned' if end else ''}"


def doubts(study: Study) -> dict[str, list[float]]:
    """Return LARRY / stock (below 1 is better), both tuned, of each finding at each point of the grid.

    The last is of E2E targets missed.
    """
    return {
        name: [
            (_missed(study.found, ours) / _missed(study.found, stock))
            if name.startswith("missed")
            else comparison.ratio(study.found, [ours], [stock], LATENCY).value
            for ours, stock in pairs
        ]
        for name, pairs in cases.doubted(study.tunings).items()
    }


def holds_everywhere(study: Study) -> dict[str, bool]:
    """Return, for each finding of `doubts`, whether LARRY is better at every point of the grid."""
    return {name: intervals.wins_everywhere(ratios) for name, ratios in doubts(study).items()}


def planning_ahead(study: Study) -> Estimate:
    """Return LARRY / stock in mean TTFT on code at load 0.7 on engines that plan one step at a time."""
    stock = cases.synchronous()
    return comparison.ratio(study.found, [cases.larry(case) for case in stock], stock, LATENCY)


def watermark_decides(study: Study) -> list[str]:
    """Name the swept settings at whose highest load a watermark changed a decision of tuned stock."""
    return [
        setting.name
        for setting in cases.SWEPT
        if comparison.watermark_decides(
            study.found, replace(setting, seeds=(0,)), cases.carrying(setting, study.tunings)["tuned stock"]
        )
    ]


def _missed(found: Found, case: Case) -> float:
    return max(1 - float(found[case][f"met_{TARGET}"]), 1e-3)  # a thousandth is less than two requests
