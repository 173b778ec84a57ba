"""LARRY against stock vLLM, default and tuned, on one simulated engine: latencies, goodput, longest waits.

Stock vLLM is run with its default settings and with each that tuned stock may take; the best of those for a
workload and metric is `tuned`. Where KV is short, only the watermark was tuned. Ratios are over seeds
(segments of a recorded trace), paired.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from e2e.bench.larry import cases
from e2e.bench.report import intervals
from e2e.bench.report.intervals import Estimate
from e2e.bench.runs import comparison
from e2e.bench.runs.engine import GRID, Case
from e2e.bench.runs.pool import Figures
from e2e.bench.runs.setting import Setting
from headrace_engine.sim import metrics
from headrace_engine.sim.metrics import Goodput

Found = Mapping[Case, Figures]
TARGETS = ("ttft", "e2e", "tpot")  # of `engine.TARGETS`: TTFT within 1 s; E2E within 5x alone; TPOT 50 ms


def figures(found: Found) -> dict[str, float]:
    """Return what `larry.json` holds; ratios rounded to what the simulation can tell."""
    made = {**_latencies(found), **_waits(found), **_goodputs(found)}
    for setting in cases.SETTINGS:
        load = 0.9 if 0.9 in setting.all_loads() and setting not in cases.SHORT_OF_KV else 1.0
        made[f"gain_kept_{setting.at(load)}"] = gain_kept(found, setting, load)
    for figure in ("ttft_mean", "e2e_mean"):
        made[f"worst_{figure}_ratio_to_07"] = worst_at_low_load(found, figure)[0].value
    for name, ratios in doubts(found).items():
        made[f"grid_worst_{name}"] = max(ratios)
    return {key: round(value, 3) for key, value in made.items()}


def _latencies(found: Found) -> dict[str, float]:
    """Mean TTFT against default and tuned stock, with the engine's step budget and the small one."""
    made: dict[str, float] = {}
    for setting in cases.SETTINGS:
        for load in setting.all_loads():
            name = f"ttft_mean_ratio_{setting.at(load)}"
            made |= intervals.keyed(name, ratio(found, setting, load))
            if setting in cases.SWEPT:
                small = ratio(found, setting, load, kind="LARRY, 1,024")
                made |= intervals.keyed(f"{name}_1024", small)
            if has_tuned(setting, load):
                which = "tuned" if setting in cases.SWEPT else "tuned_watermark"
                made |= intervals.keyed(f"{name}_{which}", ratio(found, setting, load, against="tuned"))
    return made


def _waits(found: Found) -> dict[str, float]:
    """Return the longest wait: of the default, of the paper's form, and of LARRY with the small budget."""
    made: dict[str, float] = {}
    for setting in cases.SETTINGS:
        for load in setting.all_loads():
            end = setting.at(load)
            for name, kind, against in (
                (f"wait_max_ratio_{end}", "LARRY", "stock"),
                (f"wait_max_ratio_paper_{end}", "paper", "stock"),
                (f"wait_max_ratio_{end}_1024", "LARRY, 1,024", "stock"),
                (f"wait_max_ratio_{end}_1024_of_stock_1024", "LARRY, 1,024", "stock, 1,024"),
            ):
                if setting in cases.SWEPT or kind != "LARRY, 1,024":
                    waits = ratio(found, setting, load, "wait_max", kind=kind, against=against)
                    made |= intervals.keyed(name, waits)
    return made


def _goodputs(found: Found) -> dict[str, float]:
    """Return each ratio with `_bound`: 0 exact, 1 at least, -1 at most; none that could be either."""
    made: dict[str, float] = {}
    for setting, target in itertools.product(cases.SWEPT, TARGETS):
        for against, end in (("stock", ""), ("tuned", "_tuned")):
            for kind, budget in (("LARRY, 1,024", ""), ("LARRY", "_engine_budget")):
                name = f"goodput_ratio_{setting.key}_{target}{end}{budget}"
                made |= comparison.keyed(name, goodput_ratio(found, setting, target, kind, against))
    return made


def runs_of(setting: Setting, load: float, kind: str = "stock") -> list[Case]:
    """Return one run for each seed of `kind`, one of the names below."""
    made: Mapping[str, Callable[[Case], Case]] = {
        "stock": lambda case: case,
        "stock, 1,024": lambda case: replace(case, budget=cases.SMALL),
        "stock, 5 % watermark": lambda case: replace(case, watermark=0.05),
        "LARRY": cases.larry,
        "LARRY, 1,024": lambda case: cases.larry(case, cases.SMALL),
        "LARRY, 5 % watermark": lambda case: replace(cases.larry(case), watermark=0.05),
        "paper": cases.paper,
        "paper, 1,024": lambda case: cases.paper(case, cases.SMALL),
        "SRPT": cases.srpt,
        "SRPT, 1,024": lambda case: cases.srpt(case, cases.SMALL),
    }
    return [made[kind](setting.case(load, seed)) for seed in setting.seeds]


def values(found: Found, runs: Sequence[Case], figure: str) -> list[float]:
    """List the figure's value in each run."""
    return [float(found[case][figure]) for case in runs]


def ratio(
    found: Found,
    setting: Setting,
    load: float,
    figure: str = "ttft_mean",
    *,
    kind: str = "LARRY",
    against: str = "stock",
) -> Estimate:
    """Return `kind` / `against` of a latency; "tuned" is the tuned stock that is best in this figure."""
    tuned = against == "tuned"
    stock = best_stock(found, setting, load, figure) if tuned else runs_of(setting, load, against)
    return intervals.ratio(
        _positive(values(found, runs_of(setting, load, kind), figure)),
        _positive(values(found, stock, figure)),
    )


def best_stock(found: Found, setting: Setting, load: float, figure: str) -> list[Case]:
    """Return the setting that tuned stock may take with the lowest mean of this figure over seeds."""
    if setting in cases.SWEPT:
        choices = [list(each) for each in zip(*map(cases.tuned, runs_of(setting, load)), strict=True)]
    else:
        choices = [runs_of(setting, load, kind) for kind in ("stock", "stock, 5 % watermark")]
    return min(choices, key=lambda runs: sum(values(found, runs, figure)))


def has_tuned(setting: Setting, load: float) -> bool:
    """Tell whether tuned stock was simulated there."""
    return load in setting.loads or setting in cases.SHORT_OF_KV


def gain_kept(found: Found, setting: Setting, load: float) -> float:
    """Return the share of the paper's form's gain in mean TTFT that LARRY keeps, over all seeds.

    Says nothing where the paper's form hardly gains; 1 where it gains exactly nothing.
    """
    stock, ours, paper = (
        sum(values(found, runs_of(setting, load, kind), "ttft_mean")) for kind in ("stock", "LARRY", "paper")
    )
    return (stock - ours) / (stock - paper) if paper != stock else 1.0


def goodput(found: Found, setting: Setting, target: str, runs: Sequence[Sequence[Case]]) -> list[Goodput]:
    """Return, for each seed, the load up to which 90 % of the requests meet the target; `runs` by load."""
    shares = [values(found, each, f"met_{target}") for each in runs]
    return [metrics.goodput(setting.loads, list(seed)) for seed in zip(*shares, strict=True)]


def goodput_of(found: Found, setting: Setting, target: str, kind: str) -> list[Goodput]:
    """Return `goodput` of stock, LARRY or either with the small budget."""
    return goodput(found, setting, target, [runs_of(setting, load, kind) for load in setting.loads])


def tuned_goodput(found: Found, setting: Setting, target: str) -> list[Goodput]:
    """Return `goodput` of the tuned stock with the highest mean over seeds."""
    by_load = [
        list(zip(*(cases.tuned(case) for case in runs_of(setting, load)), strict=True))
        for load in setting.loads
    ]
    choices = [goodput(found, setting, target, runs) for runs in zip(*by_load, strict=True)]
    return max(choices, key=lambda each: sum(point.load for point in each))


def goodput_ratio(
    found: Found, setting: Setting, target: str, kind: str, against: str = "stock"
) -> tuple[Estimate, str]:
    """Return `kind` / `against`, and `>` or `<` where the sweep's ends bound it, `~` where either way."""
    ours = goodput_of(found, setting, target, kind)
    tuned = against == "tuned"
    stock = tuned_goodput(found, setting, target) if tuned else goodput_of(found, setting, target, against)
    return comparison.ratio_of(ours, stock)


def worst_at_low_load(found: Found, figure: str) -> tuple[Estimate, str]:
    """Return the highest LARRY / stock with the same budget and watermark at loads up to 0.7, and where."""
    return max(_at_low_load(found, figure), key=lambda each: each[0].value)


def _at_low_load(found: Found, figure: str) -> Iterator[tuple[Estimate, str]]:
    for setting in cases.SETTINGS:
        others = [", 1,024"] * (setting in cases.SWEPT) + [", 5 % watermark"] * (setting in cases.SHORT_OF_KV)
        for load in (each for each in setting.all_loads() if each <= 0.7):
            for same in ("", *others):
                found_here = ratio(found, setting, load, figure, kind=f"LARRY{same}", against=f"stock{same}")
                yield found_here, f"{setting.name}, load {load:g}{same}"


def doubts(found: Found) -> dict[str, list[float]]:
    """Return LARRY / stock (below 1 is better) of each finding, at each point of the grid, in its order.

    The last is of E2E targets missed, with the small budget against both budgets of stock, the better one.
    """
    made: dict[str, list[float]] = {}
    for setting, load in cases.FINDINGS:
        pairs = [(case, cases.larry(case)) for case in _gridded(setting, load)]
        made[f"ttft_mean_{setting.at(load)}"] = [
            float(found[ours]["ttft_mean"]) / float(found[stock]["ttft_mean"]) for stock, ours in pairs
        ]
    setting, load = cases.GOODPUT_CLAIM
    made[f"missed_e2e_{setting.at(load)}_1024"] = [
        _missed(found, cases.larry(case, cases.SMALL))
        / min(_missed(found, case), _missed(found, replace(case, budget=cases.SMALL)))
        for case in _gridded(setting, load)
    ]
    return made


def holds_everywhere(found: Found) -> dict[str, bool]:
    """Return, for each finding of `doubts`, whether LARRY is better at every point of the grid."""
    return {name: intervals.wins_everywhere(ratios) for name, ratios in doubts(found).items()}


def _gridded(setting: Setting, load: float) -> list[Case]:
    case = setting.case(load, 0)
    return [replace(case, mixed=mixed, overhead_ms=overhead) for mixed, overhead in GRID]


def _missed(found: Found, case: Case) -> float:
    return max(1 - float(found[case]["met_e2e"]), 1e-3)  # a thousandth is less than two requests


def _positive(numbers: Sequence[float]) -> list[float]:
    """Replace waits of 0, so that ratios exist; the shortest step is some milliseconds."""
    return [max(number, 1e-3) for number in numbers]
