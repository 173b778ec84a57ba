"""The page and the pictures of the study of LARRY."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from e2e.bench import intervals, larry, plots, report
from e2e.bench import larry_cases as runs
from e2e.bench.cases import GRID, Case
from e2e.bench.intervals import Estimate
from e2e.bench.larry import Found
from e2e.bench.larry_cases import Setting
from e2e.bench.plots import Curve
from e2e.bench.report import Cell
from headrace_engine.sim.metrics import Goodput

LEVEL = 0.9  # attainment that goodput asks for
LATENCIES = (
    ("mean TTFT", "ttft_mean"),
    ("p95 TTFT", "ttft_p95"),
    ("p99 TTFT", "ttft_p99"),
    ("mean JCT", "jct_mean"),
    ("p99 JCT", "jct_p99"),
    ("mean JCT per token", "normalized_mean"),
    ("p99 TBT", "tbt_p99"),
    ("longest wait", "wait_max"),
)
TARGET_NAMES = {"ttft": "TTFT within 1 s", "jct": "JCT within 5x alone", "tbt": "mean TBT within 50 ms"}


def write(found: Found, folder: Path) -> Path:
    """The whole page; returns its path."""
    return report.page(
        "larry",
        "LARRY on one engine",
        _introduction(),
        "## Latencies against stock",
        latencies(found),
        "## Goodput",
        report.picture(*attainment(found, folder)),
        goodputs(found),
        "## Ageing: what is gained, and who waits for it",
        report.picture(*curve(found, (*runs.SWEPT, runs.SHAREGPT), folder)),
        _ageing_table(found),
        "## Other policies",
        rivals(found),
        "## Weight of waiting",
        alphas(found),
        "## How sure this is",
        doubts(found),
        "## Where LARRY does not help",
        limits(found),
        folder=folder,
    )


def _introduction() -> str:
    names = "; ".join(setting.name for setting in runs.SETTINGS)
    return (
        f"Workloads: {names}. Load 1 is what stock vLLM with its default settings (8,192 tokens a step) "
        f"sustains "
        "when all requests wait from the start. Ratios are LARRY / stock, below 1 LARRY is better unless "
        "it says "
        "goodput. *Default* stock has no watermark; *tuned* stock is the best, for that row, of step budgets "
        "8,192, 2,048 and 1,024 with and without a 5 % watermark. Brackets: 95 % interval over seeds."
    )


def latencies(found: Found) -> str:
    """Ratios of latencies, against both kinds of stock."""
    rows: list[Sequence[Cell]] = []
    for setting in runs.SETTINGS:
        for load in sorted({*setting.loads, *setting.others}):
            if load < 0.1:
                continue
            rows.append(
                (
                    f"{setting.name}: {load:g}",
                    *(larry.ratio(found, setting, load, figure) for _, figure in LATENCIES[:1]),
                    *(larry.ratio(found, setting, load, figure).value for _, figure in LATENCIES[1:]),
                    larry.ratio(found, setting, load, tuned=True).value if load in setting.loads else None,
                )
            )
    header = ("workload: load", *(name for name, _ in LATENCIES), "mean TTFT / tuned")
    return report.table(header, rows)


def goodputs(found: Found) -> str:
    """Loads that each sustains at 90 % attainment, and the ratios."""
    rows: list[Sequence[Cell]] = []
    for setting in runs.SWEPT:
        for target in larry.TARGETS:
            stock = larry.goodput_of(found, setting, target, "stock")
            best = larry.tuned_goodput(found, setting, target)
            row: list[Cell] = [f"{setting.name}: {TARGET_NAMES[target]}", _loads(stock), _loads(best)]
            for kind in ("LARRY", "LARRY, 1,024"):
                row.append(_loads(larry.goodput_of(found, setting, target, kind)))
                for tuned in (False, True):
                    estimate, bound = larry.goodput_ratio(found, setting, target, kind, tuned=tuned)
                    row.append(f"{bound} {estimate}".strip())
            rows.append(row)
    header = ["workload: target", "stock", "tuned stock"]
    for kind in ("LARRY", "LARRY, 1,024"):
        header += [kind, "/ stock", "/ tuned"]
    note = (
        "Loads at which 90 % of the requests meet the target, means over seeds. `<` and `>`: beyond the "
        "ends of the "
        "sweep, so the ratio is a bound; `~`: beyond them on both sides. `1,024`: with step budget Fixed "
        "1,024."
    )
    return f"{report.table(header, rows)}\n\n{note}"


def _loads(points: Sequence[Goodput]) -> str:
    bounds = {point.bound for point in points} - {"="}
    mark = bounds.pop() if len(bounds) == 1 else "~" if bounds else ""
    return f"{mark}{intervals.mean([point.load for point in points]).value:.3g}"


def attainment(found: Found, folder: Path) -> tuple[Path, str]:
    """Share of requests within JCT 5x over load."""
    kinds = {
        "stock": "stock",
        "stock, 1,024": "stock, 1,024",
        "LARRY": "LARRY",
        "LARRY, 1,024": "LARRY, 1,024",
    }
    panels = {
        setting.name.partition(",")[0]: {
            name: Curve(
                setting.loads,
                [
                    intervals.mean(larry.values(found, larry.runs_of(setting, load, kind), "met_jct")).value
                    for load in setting.loads
                ],
            )
            for name, kind in kinds.items()
        }
        for setting in runs.SWEPT
    }
    estimate, bound = larry.goodput_ratio(found, runs.CODE, "jct", "LARRY, 1,024", tuned=False)
    words = {">": "more than ", "<": "at most ", "~": "about "}.get(bound, "")
    title = f"With 1,024 tokens a step LARRY carries {words}{estimate.value:.1f}x stock's load of bursty code"
    caption = (
        "Simulated. Share of requests whose JCT is within 5x of their time alone; means over three seeds."
    )
    path = plots.curves(
        folder / "larry_goodput.svg",
        title,
        caption,
        panels,
        x_label="load, of what stock sustains",
        y_label="requests within target",
        level=(LEVEL, "90 %"),
        percent=True,
    )
    return path, f"{title}. {caption}"


def curve(found: Found, settings: Sequence[Setting], folder: Path) -> tuple[Path, str]:
    """Gain kept against longest wait, for each patience."""
    panels = {
        f"{setting.name.partition(',')[0]}, load {setting.point:g}": {
            "patience": [
                (wait, kept, "off" if patience == 0 else f"{patience} %")
                for patience, wait, kept, _ in aged(found, setting)
            ]
        }
        for setting in settings
    }
    chosen = f"{runs.DEFAULTS.patience} %"
    title = f"A patience of {chosen} keeps most of the gain and bounds the longest wait"
    caption = (
        "Simulated. Of the gain in mean TTFT that the paper's form (off) has over stock, the share kept; "
        "shaded: "
        "90 % kept, longest wait at most 1.5x stock's."
    )
    path = plots.trade_off(
        folder / "larry.svg",
        title,
        caption,
        panels,
        x_label="longest wait, of stock's",
        y_label="gain kept",
        chosen=chosen,
        box=(1.5, 0.9),
        percent=True,
        log=True,
    )
    return path, f"{title}. {caption}"


def aged(found: Found, setting: Setting) -> list[tuple[int, float, float, float]]:
    """For each patience: longest wait / stock's, share of the paper's gain kept, mean TTFT / stock's."""
    seeds = setting.seeds[:2]
    stock = [setting.case(setting.point, seed) for seed in seeds]

    def total(cases: Sequence[Case], figure: str) -> float:
        return sum(max(value, 1e-3) for value in larry.values(found, cases, figure))

    full = total(stock, "ttft_mean") - total([runs.larry(case, patience=0) for case in stock], "ttft_mean")
    made = []
    for patience in runs.PATIENCES:
        ours = [runs.larry(case, patience=patience) for case in stock]
        waits = intervals.ratio(
            *([max(value, 1e-3) for value in larry.values(found, each, "wait_max")] for each in (ours, stock))
        )
        gain = total(stock, "ttft_mean") - total(ours, "ttft_mean")
        mean = total(ours, "ttft_mean") / total(stock, "ttft_mean")
        made.append((patience, waits.value, gain / full if full else 0.0, mean))
    return made


def _ageing_table(found: Found) -> str:
    rows: list[Sequence[Cell]] = []
    settings = (*runs.SWEPT, runs.SHAREGPT, runs.LLAMA13)
    points = [aged(found, setting) for setting in settings]
    for place, patience in enumerate(runs.PATIENCES):
        name = "0 (paper)" if patience == 0 else f"{patience}"
        cells = [f"{each[place][2]:.0%} / {each[place][1]:.2f}" for each in points]
        rows.append((f"{name}, default" if patience == runs.DEFAULTS.patience else name, *cells))
    header = ("patience, %", *(f"{setting.name}: {setting.point:g}" for setting in settings))
    return f"{report.table(header, rows)}\n\nGain in mean TTFT kept / longest wait as a multiple of stock's."


def rivals(found: Found) -> str:
    """Every policy against default stock."""
    rows: list[Sequence[Cell]] = []
    for setting in (runs.CODE, runs.POISSON, runs.CONVERSATION, runs.SHAREGPT):
        stock = found[setting.case(setting.point, 0)]
        for case in dict.fromkeys(runs.rivals(setting)):
            ours = found[case]
            small = runs.SMALL in (case.step_budget, case.budget)
            rows.append(
                (
                    f"{setting.name}: {setting.point:g}",
                    f"{case.policy}{', 1,024' if small else ''}",
                    *(
                        float(ours[figure]) / max(float(stock[figure]), 1e-3)
                        for figure in ("ttft_mean", "ttft_p95", "jct_mean", "normalized_mean", "wait_max")
                    ),
                    f"{float(ours['met_jct']):.0%}",
                    int(ours["preemptions"]),
                )
            )
    header = (
        *("workload: load", "policy", "mean TTFT", "p95 TTFT", "mean JCT", "JCT per token", "longest wait"),
        *("JCT within 5x", "preemptions"),
    )
    note = (
        "Of default stock, one seed. SPF: shortest prompt first. SRPT knows every output length, TRAIL a "
        "prediction "
        "of it (true length times a lognormal factor, sigma 0.5) and NoPreempt reserves the true length; "
        "only SPF "
        "could be run as it is."
    )
    return f"{report.table(header, rows)}\n\n{note}"


def alphas(found: Found) -> str:
    """Mean TTFT and longest wait over alpha, with and without ageing."""
    rows: list[Sequence[Cell]] = []
    settings = (runs.CODE, runs.POISSON, runs.CONVERSATION, runs.SHAREGPT)
    for alpha in runs.ALPHAS:
        row: list[Cell] = [f"{alpha:,}"]
        for setting in settings:
            case = setting.case(setting.point, 0)
            for patience in (None, 0):
                ours = found[runs.larry(case, alpha=alpha, patience=patience)]
                ratios = [
                    float(ours[figure]) / max(float(found[case][figure]), 1e-3)
                    for figure in ("ttft_mean", "wait_max")
                ]
                row.append(f"{ratios[0]:.2f} / {ratios[1]:.2f}")
        rows.append(row)
    header = ["alpha"]
    for setting in settings:
        header += [f"{setting.key}: {setting.point:g}", "paper's form"]
    return f"{report.table(header, rows)}\n\nMean TTFT / longest wait, of default stock; one seed."


def doubts(found: Found) -> str:
    """Each claim at the nine points of the grid."""
    rows: list[Sequence[Cell]] = []
    for name, ratios in larry.doubts(found).items():
        holds = "yes" if intervals.wins_everywhere(ratios) else "no"
        rows.append((name, *ratios, holds))
    header = ["claim", *(f"{mixed:g} / {overhead:g} ms" for mixed, overhead in GRID), "wins everywhere"]
    pairs = [
        (float(found[runs.larry(case)]["ttft_mean"]), float(found[case]["ttft_mean"]))
        for case in (replace(each, sync=True) for each in runs.points(runs.CODE, (0.7,)))
    ]
    once: Estimate = intervals.ratio([ours for ours, _ in pairs], [stock for _, stock in pairs])
    return (
        f"{report.table(header, rows)}\n\nLARRY / stock with attention of mixed batches dearer by a "
        f"factor, and a time "
        "added to each step; load 1 is stock's at each point. `missed_jct`: requests beyond 5x, LARRY "
        "with 1,024 "
        f"tokens a step against the better of stock's two budgets. With synchronous scheduling LARRY's "
        f"mean TTFT on "
        f"code at load 0.7 is {once} of stock's."
    )


def limits(found: Found) -> str:
    """What the figures say against it."""
    none = [
        f"{setting.name}, load {load:g}"
        for setting in runs.SETTINGS
        for load in sorted({*setting.loads, *setting.others})
        if load >= 0.1 and larry.ratio(found, setting, load).value > 0.95
    ]
    kept = [
        f"{setting.name} {larry.gain_kept(found, setting, setting.point):.0%} at load {setting.point:g}"
        for setting in runs.SETTINGS
    ]
    worst = {figure: larry.worst_at_low_load(found, figure) for figure in ("ttft_mean", "jct_mean")}
    long = [
        f"{setting.name}: {larry.ratio(found, setting, setting.point, 'wait_max').value:.2f}x at load "
        f"{setting.point:g}"
        for setting in runs.SETTINGS
    ]
    return "\n".join(
        [
            (
                f"- Mean TTFT gains less than 5 % (or nothing) here: {'; '.join(none) or 'nowhere'}. Where "
                f"no queue "
                "forms there is nothing to reorder."
            ),
            (
                f"- Of the gain of the paper's form the default keeps: {'; '.join(kept)}. Where slots or "
                f"KV held by "
                "outputs run out, a short prompt is no short job: most of that gain is bought from those "
                "who starve."
            ),
            f"- The longest wait, of stock's: {'; '.join(long)}.",
            (
                f"- At loads up to 0.7, the worst ratio to stock with the same budget and watermark: mean "
                f"TTFT "
                f"{worst['ttft_mean'][0]:.3f} ({worst['ttft_mean'][1]}), mean JCT {worst['jct_mean'][0]:.3f} "
                f"({worst['jct_mean'][1]})."
            ),
            (
                "- With stock's own step budget of 8,192 tokens LARRY moves goodput little: most of a step "
                "is one long "
                "prompt whoever is first. The small budget and the order need each other."
            ),
        ]
    )
