"""A policy against stock vLLM, as the studies compare them: runs by kind, ratios and goodputs over seeds.

Seeds share no request of a recorded workload, so that an interval is over independent runs; ratios are
paired by seed. *Tuned* runs have the engine settings that `tuning` found on a sample of their own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from e2e.bench.report import intervals
from e2e.bench.report.intervals import Estimate
from e2e.bench.runs.engine import Case
from e2e.bench.runs.pool import Figures
from e2e.bench.runs.setting import Setting
from headrace_engine.sim import metrics
from headrace_engine.sim.metrics import Goodput

Found = Mapping[Case, Figures]
Kind = Callable[[Case], Case]
"""Of a run of default stock, the same run with something else."""

SHORT_OF_KV = ("opt-13b-a100", "llama-2-13b-a100", "llama-3-8b-h100-8gib")  # engines
LIGHT = 0.5  # of stock's sustained load: nothing may be worse there
LEAST = 1e-3  # seconds; a wait can be 0, the shortest step is some milliseconds
MET = 0.9  # of the requests within their targets: what goodput asks for
LEFT = 0.005  # of the requests: where more wait at all times late in a run, the queue only grows
WATERMARK = 0.05  # tried where KV is not short, to show that it decides nothing there
LOAD_ONE = (
    "Load 1 is what default stock vLLM (8,192 tokens and 256 requests a step) sustains when all requests "
    "wait from the start."
)
TUNED = (
    "*Tuned* is with the step budget, and where KV is short the watermark, that did best on a sample "
    "which no "
    "other figure is of: searched for stock and for the policy with the same effort, then fixed."
)
STEADY = (
    "A load counts as sustained only if the queue empties in the last quarter of the run (less than "
    f"{LEFT:.1%} of the requests wait at some moment of it); where it only grows, nobody counts as served in "
    "time, since a longer run would be worse."
)
BOUNDS = {"": 0, ">": 1, "<": -1}  # of a goodput ratio; `~` has none


def stock(case: Case) -> Case:
    """Return the run of default stock itself."""
    return case


def other(policy: str) -> Kind:
    """Return another policy, or one of the simulator's baselines, with its defaults."""
    return lambda case: replace(case, policy=policy)


def runs(setting: Setting, load: float, kind: Kind = stock, seeds: int | None = None) -> list[Case]:
    """List one run for each seed."""
    return [kind(setting.case(load, seed)) for seed in setting.seeds[:seeds]]


def sweep(setting: Setting, kinds: Iterable[Kind], loads: Iterable[float] | None = None) -> list[Case]:
    """List these at each of the loads, by default all of the setting's."""
    chosen, listed = setting.all_loads() if loads is None else loads, list(kinds)
    return [case for load in chosen for kind in listed for case in runs(setting, load, kind)]


def watermarks(setting: Setting, kind: Kind) -> list[Case]:
    """List runs at the highest load with and without a watermark, which show whether it decides anything."""
    top = runs(setting, max(setting.loads), kind)
    return [*top, *(replace(case, watermark=WATERMARK) for case in top)]


def watermark_decides(found: Found, setting: Setting, kind: Kind) -> bool:
    """Tell whether a watermark changed any decision at the highest load."""
    made = watermarks(setting, kind)
    half = len(made) // 2
    return any(
        found[with_it]["decisions"] != found[without]["decisions"]
        for without, with_it in zip(made[:half], made[half:], strict=True)
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


def grows(found: Found, cases: Iterable[Case]) -> bool:
    """Tell whether the queue of any of these runs only grew: then its latencies are of that length of run."""
    return any(float(found[case]["left_waiting"]) > LEFT for case in cases)


def attained(figures: Figures, target: str) -> float:
    """Return the share of a run's requests that met the target; 0 where the queue only grew."""
    return float(figures[f"met_{target}"]) if float(figures["left_waiting"]) <= LEFT else 0.0


def goodputs(
    found: Found, setting: Setting, target: str, kind: Kind, loads: Sequence[float] | None = None
) -> list[Goodput]:
    """Return, for each seed, the load up to which 90 % of the requests meet the target."""
    swept = setting.loads if loads is None else loads
    shares = [[attained(found[case], target) for case in runs(setting, load, kind)] for load in swept]
    return [metrics.goodput(swept, list(seed), MET) for seed in zip(*shares, strict=True)]


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


def shown(found: tuple[Estimate, str]) -> str:
    """Write a goodput ratio with its bound, `~` where the sweep's ends leave it open."""
    estimate, bound = found
    return "~" if bound == "~" else f"{bound} {estimate}".strip()


def loads_of(points: Sequence[Goodput]) -> str:
    """List the goodput of each seed."""
    return ", ".join(f"{point.bound.strip('=')}{point.load:.2f}" for point in points)


def told(settings: Iterable[Setting]) -> str:
    """Write how the page of a study begins: its workloads and how long runs are, and what load 1 is."""
    return f"Workloads: {'; '.join(f'{each.name} ({size(each)})' for each in settings)}. {LOAD_ONE}"


def size(setting: Setting) -> str:
    """Say how many seeds it was run with, of how many requests."""
    return f"{seeds(setting)} of {setting.requests:,} requests"


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
