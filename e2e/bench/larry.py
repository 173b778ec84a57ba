"""LARRY against stock vLLM, default and tuned, on one simulated engine: latencies, goodput, longest waits.

Stock vLLM is run with its default settings and with each that tuned stock may take; the best of those for a
workload and metric is `tuned`. Ratios are over seeds (segments of a recorded trace), paired.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from e2e.bench import intervals, results, study
from e2e.bench import larry_cases as runs
from e2e.bench.cases import GRID, Case, measure
from e2e.bench.intervals import Estimate
from e2e.bench.larry_cases import Setting
from e2e.bench.pool import Figures
from headrace_engine.sim import metrics
from headrace_engine.sim.metrics import Goodput

COMMAND = "python -m e2e.bench.larry"
Found = Mapping[Case, Figures]
TARGETS = ("ttft", "jct")  # of `cases.TARGETS`: TTFT within 1 s; JCT within 5x the time alone
QUICK = replace(
    runs.CODE, loads=(0.1, 0.7), others=(), seeds=(0,), requests=150, name="a tiny piece of Azure code"
)


def main() -> None:
    """Run the study."""
    run(study.options(__doc__))


def run(options: study.Options) -> None:
    """Simulate what is missing, then write figures, page and pictures."""
    from e2e.bench import larry_page  # noqa: PLC0415  it needs what is here

    if options.quick:
        found = measure(_tiny(), "larry, quick", options.workers)
        larry_page.curve(found, (QUICK,), options.folder)
        return
    found = measure(runs.everything(), "larry", options.workers)
    print(results.write("larry", COMMAND, figures(found), simulated=True, folder=options.folder))
    print(larry_page.write(found, options.folder))


def figures(found: Found) -> dict[str, float]:
    """What `larry.json` holds; ratios rounded to what the simulation can tell."""
    made: dict[str, float] = {}
    for setting in (runs.CONVERSATION, runs.CODE):
        for load in (0.8, 0.9, 1.0):
            made[f"ttft_mean_ratio_{setting.key}_{load * 10:02.0f}"] = ratio(found, setting, load).value
        made[f"wait_max_ratio_{setting.key}_09"] = ratio(found, setting, 0.9, "wait_max").value
        made[f"wait_max_ratio_paper_{setting.key}_09"] = ratio(
            found, setting, 0.9, "wait_max", kind="paper"
        ).value
        made[f"gain_kept_{setting.key}_09"] = gain_kept(found, setting, 0.9)
    for load in (0.1, 0.3, 0.5, 0.7):
        made[f"ttft_mean_ratio_code_{load * 10:02.0f}"] = ratio(found, runs.CODE, load).value
        made[f"ttft_mean_ratio_code_{load * 10:02.0f}_1024"] = ratio(
            found, runs.CODE, load, kind="LARRY, 1,024"
        ).value
    for setting in runs.SWEPT:
        for target in TARGETS:
            for against in ("", "_tuned"):
                key = f"{setting.key}_{target}{against}"
                for kind, suffix in (("LARRY, 1,024", ""), ("LARRY", "_engine_budget")):
                    value, _ = goodput_ratio(found, setting, target, kind, tuned=bool(against))
                    made[f"goodput_ratio_{key}{suffix}"] = value.value
        for load in {0.7, 0.8, 0.9, 1.0} & {*setting.loads}:
            key = f"ttft_mean_ratio_{setting.key}_{load * 10:02.0f}_tuned"
            made[key] = ratio(found, setting, load, tuned=True).value
    for setting in (runs.SHAREGPT, runs.LLAMA13):
        made[f"ttft_mean_ratio_{setting.key}_10"] = ratio(found, setting, 1.0).value
        made[f"wait_max_ratio_{setting.key}_10"] = ratio(found, setting, 1.0, "wait_max").value
        made[f"wait_max_ratio_paper_{setting.key}_10"] = ratio(
            found, setting, 1.0, "wait_max", kind="paper"
        ).value
        made[f"gain_kept_{setting.key}_10"] = gain_kept(found, setting, 1.0)
    made["worst_ttft_mean_ratio_to_07"] = worst_at_low_load(found, "ttft_mean")[0]
    made["worst_jct_mean_ratio_to_07"] = worst_at_low_load(found, "jct_mean")[0]
    for name, values in doubts(found).items():
        made[f"grid_worst_{name}"] = max(values)
    return {key: round(value, 3) for key, value in made.items()}


def runs_of(setting: Setting, load: float, kind: str = "stock") -> list[Case]:
    """One run for each seed of `kind`: stock, LARRY, paper, or either of the first two with `, 1,024`."""
    made: Mapping[str, Callable[[Case], Case]] = {
        "stock": lambda case: case,
        "stock, 1,024": lambda case: replace(case, budget=runs.SMALL),
        "stock, 5 % watermark": lambda case: replace(case, watermark=0.05),
        "LARRY": runs.larry,
        "LARRY, 1,024": lambda case: runs.larry(case, runs.SMALL),
        "LARRY, 5 % watermark": lambda case: replace(runs.larry(case), watermark=0.05),
        "paper": runs.paper,
    }
    return [made[kind](setting.case(load, seed)) for seed in setting.seeds]


def values(found: Found, cases: Sequence[Case], figure: str) -> list[float]:
    """The figure of each run."""
    return [float(found[case][figure]) for case in cases]


def ratio(
    found: Found,
    setting: Setting,
    load: float,
    figure: str = "ttft_mean",
    *,
    kind: str = "LARRY",
    tuned: bool = False,
) -> Estimate:
    """`kind` / stock, or / the tuned stock that is best in this figure, of a latency."""
    stock = best_stock(found, setting, load, figure) if tuned else runs_of(setting, load)
    return intervals.ratio(
        _positive(values(found, runs_of(setting, load, kind), figure)),
        _positive(values(found, stock, figure)),
    )


def best_stock(found: Found, setting: Setting, load: float, figure: str) -> list[Case]:
    """Of the settings that tuned stock may take, the one with the lowest mean of this figure over seeds."""
    choices = [list(each) for each in zip(*map(runs.tuned, runs_of(setting, load)), strict=True)]
    return min(choices, key=lambda cases: sum(values(found, cases, figure)))


def gain_kept(found: Found, setting: Setting, load: float) -> float:
    """Share of the paper's form's gain in mean TTFT that LARRY keeps, over all seeds.

    Says nothing where the paper's form hardly gains; 1 where it gains exactly nothing.
    """
    stock, ours, paper = (
        sum(values(found, runs_of(setting, load, kind), "ttft_mean")) for kind in ("stock", "LARRY", "paper")
    )
    return (stock - ours) / (stock - paper) if paper != stock else 1.0


def goodput(found: Found, setting: Setting, target: str, cases: Sequence[Sequence[Case]]) -> list[Goodput]:
    """For each seed, the load up to which 90 % of the requests meet the target; `cases` by load."""
    shares = [values(found, each, f"met_{target}") for each in cases]
    return [metrics.goodput(setting.loads, list(seed)) for seed in zip(*shares, strict=True)]


def goodput_of(found: Found, setting: Setting, target: str, kind: str) -> list[Goodput]:
    """`goodput` of stock, LARRY or either with the small budget."""
    return goodput(found, setting, target, [runs_of(setting, load, kind) for load in setting.loads])


def tuned_goodput(found: Found, setting: Setting, target: str) -> list[Goodput]:
    """`goodput` of the tuned stock with the highest mean over seeds."""
    by_load = [
        list(zip(*(runs.tuned(case) for case in runs_of(setting, load)), strict=True))
        for load in setting.loads
    ]
    choices = [goodput(found, setting, target, cases) for cases in zip(*by_load, strict=True)]
    return max(choices, key=lambda each: sum(point.load for point in each))


def goodput_ratio(
    found: Found, setting: Setting, target: str, kind: str, *, tuned: bool
) -> tuple[Estimate, str]:
    """`kind` / stock, and `>` or `<` where the sweep's ends bound it, `~` where they do either way."""
    ours = goodput_of(found, setting, target, kind)
    stock = tuned_goodput(found, setting, target) if tuned else goodput_of(found, setting, target, "stock")
    up = any(each.bound == ">" for each in ours) or any(each.bound == "<" for each in stock)
    down = any(each.bound == "<" for each in ours) or any(each.bound == ">" for each in stock)
    bound = {(True, True): "~", (True, False): ">", (False, True): "<", (False, False): ""}[up, down]
    return intervals.ratio([each.load for each in ours], [each.load for each in stock]), bound


def worst_at_low_load(found: Found, figure: str) -> tuple[float, str]:
    """The highest LARRY / stock with the same budget and watermark at loads up to 0.7, and where."""
    return max(_at_low_load(found, figure))


def _at_low_load(found: Found, figure: str) -> Iterator[tuple[float, str]]:
    for setting in runs.SETTINGS:
        for load in (each for each in {*setting.loads, *setting.others} if each <= 0.7):
            yield ratio(found, setting, load, figure).value, f"{setting.name}, load {load:g}"
            if setting in runs.SWEPT:
                small = intervals.ratio(
                    values(found, runs_of(setting, load, "LARRY, 1,024"), figure),
                    values(found, runs_of(setting, load, "stock, 1,024"), figure),
                )
                yield small.value, f"{setting.name}, load {load:g}, 1,024 tokens a step"


def doubts(found: Found) -> dict[str, list[float]]:
    """For each claim, LARRY / stock (below 1 is better) at each point of the grid, in its order.

    The last is of JCT targets missed, with the small budget against both budgets of stock, the better one.
    """
    made: dict[str, list[float]] = {}
    for setting, load in runs.CLAIMS:
        pairs = [(case, runs.larry(case)) for case in _gridded(setting, load)]
        made[f"ttft_mean_{setting.key}_{load * 10:02.0f}"] = [
            float(found[ours]["ttft_mean"]) / float(found[stock]["ttft_mean"]) for stock, ours in pairs
        ]
    setting, load = runs.GOODPUT_CLAIM
    made[f"missed_jct_{setting.key}_{load * 10:02.0f}_1024"] = [
        _missed(found, runs.larry(case, runs.SMALL))
        / min(_missed(found, case), _missed(found, replace(case, budget=runs.SMALL)))
        for case in _gridded(setting, load)
    ]
    return made


def _gridded(setting: Setting, load: float) -> list[Case]:
    case = setting.case(load, 0)
    return [replace(case, mixed=mixed, overhead_ms=overhead) for mixed, overhead in GRID]


def _missed(found: Found, case: Case) -> float:
    return max(1 - float(found[case]["met_jct"]), 1e-3)  # a thousandth is less than two requests


def _positive(numbers: Sequence[float]) -> list[float]:
    """A wait can be 0; the shortest step is some milliseconds."""
    return [max(number, 1e-3) for number in numbers]


def _tiny() -> list[Case]:
    cases = [each for case in runs.points(QUICK) for each in (case, runs.larry(case))]
    case = QUICK.case(QUICK.point, 0)
    return list(dict.fromkeys([*cases, *(runs.larry(case, patience=each) for each in runs.PATIENCES)]))


if __name__ == "__main__":
    main()
