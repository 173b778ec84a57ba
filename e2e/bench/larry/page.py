"""The page and the pictures of the study of LARRY."""

from collections.abc import Sequence
from pathlib import Path

from e2e.bench.larry import cases, figures, limits
from e2e.bench.larry.figures import Found
from e2e.bench.report import intervals, markdown, plots
from e2e.bench.report.intervals import Estimate
from e2e.bench.report.markdown import Cell
from e2e.bench.report.plots import Curve
from e2e.bench.runs import comparison
from e2e.bench.runs.engine import Case
from e2e.bench.runs.setting import Setting
from headrace_engine.sim.metrics import Goodput

LEVEL = 0.9  # attainment that goodput asks for
ALIKE = "°"
AGED_SEEDS = 2  # of the runs with each patience
LATENCIES = (
    ("mean TTFT", "ttft_mean"),
    ("p95 TTFT", "ttft_p95"),
    ("p99 TTFT", "ttft_p99"),
    ("mean E2E", "e2e_mean"),
    ("p99 E2E", "e2e_p99"),
    ("mean E2E per token", "normalized_mean"),
    ("p99 TPOT", "tpot_p99"),
    ("longest wait", "wait_max"),
)
TARGET_NAMES = {"ttft": "TTFT within 1 s", "e2e": "E2E within 5x alone", "tpot": "mean TPOT within 50 ms"}


def write(found: Found, folder: Path) -> Path:
    """Write the whole page; returns its path."""
    return markdown.page(
        "larry",
        "LARRY on one engine",
        _introduction(),
        "## Aims, reached and missed",
        limits.aims(found),
        "## Latencies against stock",
        latencies(found),
        "With step budget Fixed 1,024, the configuration of the goodput below:",
        small(found),
        "With a watermark, where KV is short:",
        watermarked(found),
        "## Goodput",
        markdown.picture(*attainment(found, folder)),
        goodputs(found),
        "## Ageing: what is gained, and who waits for it",
        markdown.picture(*curve(found, (*cases.SWEPT, cases.SHAREGPT), folder)),
        _ageing_table(found),
        "## Other policies",
        rivals(found),
        "## Weight of waiting",
        alphas(found),
        "## How sure this is",
        limits.doubts(found),
        "## Where LARRY does not help",
        limits.limits(found),
        folder=folder,
    )


def _introduction() -> str:
    return (
        f"{comparison.told(cases.SETTINGS)} Ratios are LARRY / stock, below 1 LARRY is better "
        "unless it says goodput. *Default* stock has no watermark; *tuned* stock is the best, for that row, "
        "of step budgets 8,192, 2,048 and 1,024 with and without a 5 % watermark. Where KV is short (the "
        "ShareGPT lengths) only the watermark was tuned: there it is the better of 0 and 5 % at 8,192. "
        f"Brackets: 95 % interval over seeds; `{ALIKE}` after a value: its interval spans 1, so it is not "
        "distinguishable from stock's; one seed has no interval. `†`: a finding whose sign is the same at "
        "all nine points of the cost model's doubt; `‡`: one whose sign is not. Nothing else was put to that "
        "test: those figures hold for the cost model as fitted."
    )


def short(found: Estimate) -> str:
    """Write an estimate without its interval, but marked where that spans 1."""
    return markdown.text(found.value) + (
        ALIKE if intervals.compare_with_one(found) == "not distinguishable" else ""
    )


def latencies(found: Found) -> str:
    """Tabulate ratios of latencies, against both kinds of stock."""
    rows: list[Sequence[Cell]] = []
    holds = figures.holds_everywhere(found)
    for setting in cases.SETTINGS:
        for load in _shown(setting):
            mark = {True: " †", False: " ‡", None: ""}[holds.get(f"ttft_mean_{setting.at(load)}")]
            tuned = figures.has_tuned(setting, load)
            rows.append(
                (
                    f"{setting.name}: {load:g}",
                    f"{figures.ratio(found, setting, load)}{mark}",
                    *(short(figures.ratio(found, setting, load, figure)) for _, figure in LATENCIES[1:]),
                    short(figures.ratio(found, setting, load, against="tuned")) if tuned else None,
                )
            )
    header = ("workload: load", *(name for name, _ in LATENCIES), "mean TTFT / tuned")
    return markdown.table(header, rows)


def _shown(setting: Setting) -> list[float]:
    return [load for load in setting.all_loads() if load >= 0.1]


def small(found: Found) -> str:
    """Tabulate LARRY with the small budget against default stock and stock with the same budget."""
    rows: list[Sequence[Cell]] = []
    shown = (LATENCIES[0], LATENCIES[3], LATENCIES[6], LATENCIES[7])
    for setting in cases.SWEPT:
        for load in _shown(setting):
            row: list[Cell] = [f"{setting.name}: {load:g}"]
            for against in ("stock", "stock, 1,024"):
                for _, figure in shown:
                    row.append(
                        short(
                            figures.ratio(found, setting, load, figure, kind="LARRY, 1,024", against=against)
                        )
                    )
            rows.append(row)
    header = [f"{name} / {end}" for end in ("default", "stock 1,024") for name, _ in shown]
    return markdown.table(["workload: load", *header], rows)


def watermarked(found: Found) -> str:
    """Tabulate what the watermark does where KV is short: for stock, and LARRY with and without it."""
    rows: list[Sequence[Cell]] = []
    pairs = (
        ("stock, 5 % watermark", "stock"),
        ("LARRY", "tuned"),
        ("LARRY, 5 % watermark", "stock, 5 % watermark"),
    )
    for setting in cases.SHORT_OF_KV:
        for load in setting.all_loads():
            cells = (
                figures.ratio(found, setting, load, figure, kind=kind, against=against)
                for kind, against in pairs
                for figure in ("ttft_mean", "wait_max")
            )
            rows.append((f"{setting.name}: {load:g} ({comparison.seeds(setting)})", *map(short, cells)))
    names = ("stock 5 % / stock 0", "LARRY 0 / better stock", "LARRY 5 % / stock 5 %")
    header = [f"{figure}: {name}" for name in names for figure in ("mean TTFT", "longest wait")]
    return markdown.table(["workload: load", *header], rows)


def goodputs(found: Found) -> str:
    """Loads that each sustains at 90 % attainment, and the ratios."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.SWEPT:
        for target in figures.TARGETS:
            stock = figures.goodput_of(found, setting, target, "stock")
            best = figures.tuned_goodput(found, setting, target)
            row: list[Cell] = [f"{setting.name}: {TARGET_NAMES[target]}", _loads(stock), _loads(best)]
            for kind in ("LARRY", "LARRY, 1,024"):
                row.append(_loads(figures.goodput_of(found, setting, target, kind)))
                for against in ("stock", "tuned"):
                    estimate, bound = figures.goodput_ratio(found, setting, target, kind, against)
                    row.append("~" if bound == "~" else f"{bound} {estimate}".strip())
            rows.append(row)
    header = ["workload: target", "stock", "tuned stock"]
    for kind in ("LARRY", "LARRY, 1,024"):
        header += [kind, "/ stock", "/ tuned"]
    note = (
        "Loads at which 90 % of the requests meet the target, means over seeds. `<` and `>`: beyond the "
        "ends of the sweep in some seed, so the ratio is a bound and its brackets hold for the bound; `~`: "
        "the ratio could be either side of what the sweep shows. `1,024`: with step budget Fixed 1,024. No "
        "ratio of goodput was put to the grid of doubts; what was is one load of code's sweep (below)."
    )
    return f"{markdown.table(header, rows)}\n\n{note}"


def _loads(points: Sequence[Goodput]) -> str:
    bounds = {point.bound for point in points} - {"="}
    mark = bounds.pop() if len(bounds) == 1 else "~" if bounds else ""
    return f"{mark}{intervals.mean([point.load for point in points]).value:.3g}"


def attainment(found: Found, folder: Path) -> tuple[Path, str]:
    """Draw the share of requests within E2E 5x over load."""
    kinds = ("stock", "stock, 1,024", "LARRY", "LARRY, 1,024")
    panels = {
        setting.name.partition(",")[0]: {
            kind: Curve(
                setting.loads,
                [
                    intervals.mean(
                        figures.values(found, figures.runs_of(setting, load, kind), "met_e2e")
                    ).value
                    for load in setting.loads
                ],
            )
            for kind in kinds
        }
        for setting in cases.SWEPT
    }
    title = _carries(found)
    over = "; ".join(
        f"{setting.name.partition(',')[0]}: {comparison.seeds(setting)}" for setting in cases.SWEPT
    )
    caption = (
        f"Simulated. Share of requests whose E2E is within 5x of their time alone; means over seeds ({over})."
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


def _carries(found: Found) -> str:
    """Say what the picture's first panel shows, if it shows anything."""
    estimate, bound = figures.goodput_ratio(found, cases.CODE, "e2e", "LARRY, 1,024")
    known = intervals.compare_with_one(estimate, lower_is_better=False) in ("better", "worse")
    if not known or bound == "~":
        return "Requests within their E2E target: stock and LARRY, with 8,192 and with 1,024 tokens a step"
    times = {">": "at least ", "<": "at most "}.get(bound, "") + f"{estimate.value:.1f}x"
    return f"With 1,024 tokens a step LARRY carries {times} default stock's load of bursty code"


def curve(found: Found, settings: Sequence[Setting], folder: Path) -> tuple[Path, str]:
    """Draw gain kept against longest wait, for each patience."""
    panels = {
        f"{setting.name.partition(',')[0]}, load {setting.point:g}": {
            "patience": [
                (wait, kept, "off" if patience == 0 else f"{patience} %")
                for patience, wait, kept, _ in aged(found, setting)
            ]
        }
        for setting in settings
    }
    chosen = f"{cases.DEFAULTS.patience} %"
    points = [
        (wait, kept)
        for setting in settings
        for patience, wait, kept, _ in aged(found, setting)
        if patience == cases.DEFAULTS.patience
    ]
    waits, gains = zip(*points, strict=True)
    title = (
        f"A patience of {chosen} keeps {min(gains):.0%} to {max(gains):.0%} of the gain, "
        f"at {min(waits):.2f} to {max(waits):.2f}x stock's longest wait"
    )
    caption = (
        "Simulated. Of the gain in mean TTFT that the paper's form (off) has over stock, the share kept; "
        "shaded: 90 % kept, longest wait at most 1.5x stock's."
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
    """Return, for each patience, longest wait / stock's, share of the paper's gain, mean TTFT / stock's."""
    stock = [setting.case(setting.point, seed) for seed in setting.seeds[:AGED_SEEDS]]

    def total(runs: Sequence[Case], figure: str) -> float:
        return sum(max(value, 1e-3) for value in figures.values(found, runs, figure))

    full = total(stock, "ttft_mean") - total([cases.larry(case, patience=0) for case in stock], "ttft_mean")
    made = []
    for patience in cases.PATIENCES:
        ours = [cases.larry(case, patience=patience) for case in stock]
        waits = intervals.ratio(
            *(
                [max(value, 1e-3) for value in figures.values(found, each, "wait_max")]
                for each in (ours, stock)
            )
        )
        gain = total(stock, "ttft_mean") - total(ours, "ttft_mean")
        mean = total(ours, "ttft_mean") / total(stock, "ttft_mean")
        made.append((patience, waits.value, gain / full if full else 0.0, mean))
    return made


def _ageing_table(found: Found) -> str:
    rows: list[Sequence[Cell]] = []
    settings = cases.SETTINGS
    points = [aged(found, setting) for setting in settings]
    for place, patience in enumerate(cases.PATIENCES):
        name = "0 (paper)" if patience == 0 else f"{patience}"
        cells = [f"{each[place][2]:.0%} / {each[place][1]:.2f}" for each in points]
        rows.append((f"{name}, default" if patience == cases.DEFAULTS.patience else name, *cells))
    counts = [min(len(setting.seeds), AGED_SEEDS) for setting in settings]
    header = (
        "patience, %",
        *(
            f"{setting.name}: {setting.point:g} ({count} seed{'s' * (count > 1)})"
            for setting, count in zip(settings, counts, strict=True)
        ),
    )
    return (
        f"{markdown.table(header, rows)}\n\nGain in mean TTFT kept / longest wait as a multiple of stock's."
    )


def rivals(found: Found) -> str:
    """Tabulate every policy against default stock."""
    rows: list[Sequence[Cell]] = []
    for setting in (cases.CODE, cases.POISSON, cases.CONVERSATION, cases.SHAREGPT):
        stock = found[setting.case(setting.point, 0)]
        for case in dict.fromkeys(cases.rivals(setting)):
            ours = found[case]
            small_budget = cases.SMALL in (case.step_budget, case.budget)
            rows.append(
                (
                    f"{setting.name}: {setting.point:g}",
                    f"{case.policy}{', 1,024' if small_budget else ''}",
                    *(
                        float(ours[figure]) / max(float(stock[figure]), 1e-3)
                        for figure in ("ttft_mean", "ttft_p95", "e2e_mean", "normalized_mean", "wait_max")
                    ),
                    f"{float(ours['met_e2e']):.0%}",
                    int(ours["preemptions"]),
                )
            )
    header = (
        *("workload: load", "policy", "mean TTFT", "p95 TTFT", "mean E2E", "E2E per token", "longest wait"),
        *("E2E within 5x", "preemptions"),
    )
    note = (
        "Of default stock, one seed. SPF: shortest prompt first. SRPT serves the least true work left, and "
        "whoever has more pauses for it or gives its KV away; TRAIL has a prediction of it (true length "
        "times a lognormal factor, sigma 0.5) and NoPreempt reserves the true length; only SPF could be run "
        "as it is."
    )
    return f"{markdown.table(header, rows)}\n\n{note}"


def alphas(found: Found) -> str:
    """Mean TTFT and longest wait over alpha, with and without ageing."""
    rows: list[Sequence[Cell]] = []
    settings = (cases.CODE, cases.POISSON, cases.CONVERSATION, cases.SHAREGPT)
    for alpha in cases.ALPHAS:
        row: list[Cell] = [f"{alpha:,}"]
        for setting in settings:
            case = setting.case(setting.point, 0)
            for patience in (None, 0):
                ours = found[cases.larry(case, alpha=alpha, patience=patience)]
                ratios = [
                    float(ours[figure]) / max(float(found[case][figure]), 1e-3)
                    for figure in ("ttft_mean", "wait_max")
                ]
                row.append(f"{ratios[0]:.2f} / {ratios[1]:.2f}")
        rows.append(row)
    header = ["alpha"]
    for setting in settings:
        header += [f"{setting.key}: {setting.point:g}", "paper's form"]
    return f"{markdown.table(header, rows)}\n\nMean TTFT / longest wait, of default stock; one seed."
