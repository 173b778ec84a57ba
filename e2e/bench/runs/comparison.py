"""A policy against tuned stock vLLM, as the studies of deadline policies compare them.

Tuned stock is the best, for the figure at hand, of step budgets 8,192, 2,048 and 1,024, each with a watermark
of 0 and of 5 %. Where KV is not short the watermark is run at the highest load only, to show that it decides
nothing there. Ratios are over seeds, paired.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from e2e.bench.report import intervals
from e2e.bench.report.intervals import Estimate
from e2e.bench.runs.engine import TUNED, Case
from e2e.bench.runs.pool import Figures
from e2e.bench.runs.setting import Setting
from headrace_engine.sim import metrics
from headrace_engine.sim.metrics import Goodput

Found = Mapping[Case, Figures]
Kind = Callable[[Case], Case]
"""Of a run of default stock, the same run with something else."""

SHORT_OF_KV = ("opt-13b-a100",)  # engines
LIGHT = 0.5  # of stock's sustained load: nothing may be worse there
LEAST = 1e-3  # seconds; a wait can be 0, the shortest step is some milliseconds
LOAD_ONE = (
    "Load 1 is what default stock vLLM (8,192 tokens and 256 requests a step) sustains when all requests "
    "wait from the start."
)
TUNED_STOCK = (
    "*Tuned* stock is the best, for that row, of step budgets 8,192, 2,048 and 1,024, each with and without "
    "a 5 % watermark where KV is short."
)
SEEDS = tuple(range(8))  # of a goodput: with two its interval says nothing
BOUNDS = {"": 0, ">": 1, "<": -1}  # of a goodput ratio; `~` has none


def stock(case: Case) -> Case:
    """Return the run of default stock itself."""
    return case


def tuned_with(budget: int, watermark: float) -> Kind:
    """Return the kind of run that is stock with these settings."""
    return lambda case: replace(case, budget=budget, watermark=watermark)


def choices(setting: Setting) -> list[Kind]:
    """Return what tuned stock may be; the first is the default."""
    short = setting.engine in SHORT_OF_KV
    return [tuned_with(budget, watermark) for budget, watermark in TUNED if short or not watermark]


def runs(setting: Setting, load: float, kind: Kind = stock, seeds: int | None = None) -> list[Case]:
    """List one run for each seed."""
    return [kind(setting.case(load, seed)) for seed in setting.seeds[:seeds]]


def sweep(setting: Setting, kinds: Iterable[Kind] = (), *, tuned: bool = True) -> list[Case]:
    """List default stock and these at all loads, tuned stock at the loads of the sweep."""
    made = [
        case for load in setting.all_loads() for kind in (stock, *kinds) for case in runs(setting, load, kind)
    ]
    if tuned:
        for load in setting.loads:
            made += [case for kind in choices(setting) for case in runs(setting, load, kind)]
        top = max(setting.loads)
        made += [case for budget, mark in TUNED for case in runs(setting, top, tuned_with(budget, mark))]
    return list(dict.fromkeys(made))


def watermark_decides(found: Found, setting: Setting) -> bool:
    """Tell whether a watermark changed any decision of stock at the highest load, in runs that had one."""
    top = max(setting.loads)
    return any(
        found[marked]["decisions"] != found[case]["decisions"]
        for budget in {budget for budget, _ in TUNED}
        for case in runs(setting, top, tuned_with(budget, 0.0))
        if (marked := replace(case, watermark=0.05)) in found
    )


def values(found: Found, cases: Sequence[Case], figure: str) -> list[float]:
    """Return the figure of each run; of times at least `LEAST`."""
    return [max(float(found[case][figure]), LEAST) for case in cases]


def mean(found: Found, cases: Sequence[Case], figure: str) -> float:
    """Return the figure's mean over these runs."""
    return intervals.mean(values(found, cases, figure)).value


def ratio(found: Found, ours: Sequence[Case], theirs: Sequence[Case], figure: str) -> Estimate:
    """Estimate the figure's ratio of ours to theirs."""
    return intervals.ratio(values(found, ours, figure), values(found, theirs, figure))


def best(found: Found, setting: Setting, load: float, figure: str) -> list[Case]:
    """Return tuned stock with the lowest mean of this figure over seeds."""
    each = [runs(setting, load, kind) for kind in choices(setting)]
    return min(each, key=lambda cases: sum(values(found, cases, figure)))


def best_met(found: Found, setting: Setting, load: float, target: str) -> float:
    """Return the highest attainment of tuned stock, mean over seeds."""
    each = [values(found, runs(setting, load, kind), f"met_{target}") for kind in choices(setting)]
    return max(sum(shares) / len(shares) for shares in each)


def goodputs(
    found: Found,
    setting: Setting,
    target: str,
    kind: Kind,
    *,
    loads: Sequence[float] | None = None,
    seeds: int | None = None,
) -> list[Goodput]:
    """Return, for each seed, the load up to which 90 % of the requests meet the target."""
    swept = setting.loads if loads is None else loads
    shares = [values(found, runs(setting, load, kind, seeds), f"met_{target}") for load in swept]
    return [metrics.goodput(swept, list(seed)) for seed in zip(*shares, strict=True)]


def tuned_goodputs(found: Found, setting: Setting, target: str) -> list[Goodput]:
    """Return `goodputs` of the tuned stock with the highest mean over seeds."""
    each = [goodputs(found, setting, target, kind) for kind in choices(setting)]
    return max(each, key=lambda points: sum(point.load for point in points))


def goodput_ratio(found: Found, setting: Setting, target: str, kind: Kind) -> tuple[Estimate, str]:
    """Return ours / tuned stock's, and how the sweep's ends bound it."""
    return ratio_of(goodputs(found, setting, target, kind), tuned_goodputs(found, setting, target))


def ratio_of(ours: Sequence[Goodput], theirs: Sequence[Goodput]) -> tuple[Estimate, str]:
    """Compare, with `>` or `<` where the sweep's ends bound the ratio, `~` where they do either way."""
    up = any(each.bound == ">" for each in ours) or any(each.bound == "<" for each in theirs)
    down = any(each.bound == "<" for each in ours) or any(each.bound == ">" for each in theirs)
    bound = {(True, True): "~", (True, False): ">", (False, True): "<", (False, False): ""}[up, down]
    return intervals.ratio([each.load for each in ours], [each.load for each in theirs]), bound


def light(found: Found, settings: Iterable[Setting], kind: Kind, figure: str) -> tuple[float, str]:
    """Return the highest ours / default stock at loads up to `LIGHT`, and where; of seeds that were run."""
    return max(
        (ratio(found, ours, theirs, figure).value, f"{each.name}, load {load:g}")
        for each in settings
        for load in each.all_loads()
        if load <= LIGHT and (pairs := _both(found, each, load, kind))
        for ours, theirs in [pairs]
    )


def _both(found: Found, setting: Setting, load: float, kind: Kind) -> tuple[list[Case], list[Case]] | None:
    """Runs of this kind and of default stock with the seeds that both were run with; None without any."""
    pairs = [(kind(case), case) for case in runs(setting, load) if case in found and kind(case) in found]
    return ([ours for ours, _ in pairs], [theirs for _, theirs in pairs]) if pairs else None


def keyed(name: str, found: tuple[Estimate, str]) -> dict[str, float]:
    """Name a goodput ratio's figures: `_bound` 0 exact, 1 at least, -1 at most; none that could be either."""
    estimate, bound = found
    return {**intervals.keyed(name, estimate), f"{name}_bound": BOUNDS[bound]} if bound in BOUNDS else {}


def told(settings: Iterable[Setting]) -> str:
    """Write how the page of a study begins: its workloads, and what load 1 is."""
    return f"Workloads: {'; '.join(f'{each.name} ({seeds(each)})' for each in settings)}. {LOAD_ONE}"


def seeds(setting: Setting) -> str:
    """Say how many seeds it was run with."""
    return "one seed" if len(setting.seeds) == 1 else f"{len(setting.seeds)} seeds"


def rounded(figures: Mapping[str, float | Mapping[str, float]]) -> dict[str, float | Mapping[str, float]]:
    """Round to what a simulation can tell, a nested table too."""
    return {
        key: {inner: round(number, 3) for inner, number in value.items()}
        if isinstance(value, Mapping)
        else round(value, 3)
        for key, value in figures.items()
    }
