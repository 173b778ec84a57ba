"""The page and the pictures of the study of LARRY."""

from collections.abc import Sequence
from pathlib import Path

from e2e.bench.larry import cases, figures, limits
from e2e.bench.larry.figures import Study
from e2e.bench.report import intervals, markdown, plots
from e2e.bench.report.intervals import Estimate
from e2e.bench.report.markdown import Cell
from e2e.bench.report.plots import Curve
from e2e.bench.runs import comparison, tuning
from e2e.bench.runs.comparison import Found
from e2e.bench.runs.engine import Case
from e2e.bench.runs.setting import Setting
from headrace_engine.sim.metrics import Goodput

ALIKE = "°"
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
SHOWN_TUNED = (LATENCIES[0], LATENCIES[3], LATENCIES[6], LATENCIES[7])


def write(study: Study, folder: Path) -> Path:
    """Write the whole page; returns its path."""
    return markdown.page(
        "larry",
        "LARRY on one engine",
        _introduction(study),
        "## Aims, reached and missed",
        limits.aims(study),
        "## Latencies against stock",
        "On engines with default settings:",
        latencies(study),
        "On engines tuned for the least mean TTFT:",
        tuned(study),
        tuning.told(study.tunings, cases.SETTINGS),
        "## Goodput",
        markdown.picture(*attainment(study, folder)),
        goodputs(study),
        "## Ageing: what is gained, and who waits for it",
        markdown.picture(*curve(study.found, cases.COMPARED, folder)),
        _ageing_table(study.found),
        "## Other policies",
        rivals(study),
        "## Weight of waiting",
        alphas(study.found),
        "## How sure this is",
        limits.doubts(study),
        "## Where LARRY does not help",
        limits.limits(study),
        folder=folder,
    )


def _introduction(study: Study) -> str:
    decides = figures.watermark_decides(study)
    watermark = f"decided something on: {', '.join(decides)}" if decides else "changed no decision"
    return (
        f"{comparison.told(cases.SETTINGS)} Ratios are LARRY / stock, below 1 LARRY is better "
        f"unless it says goodput. *Default* stock has no watermark. {comparison.TUNED} Where KV is not "
        "short, a "
        f"watermark of {comparison.WATERMARK:.0%} {watermark} of tuned stock. {comparison.STEADY} "
        f"Brackets: 95 % interval over seeds; `{ALIKE}` after a value: its interval spans 1, so it is not "
        "distinguishable from stock's; one seed has no interval. `†`: a finding whose sign is the same at "
        "all points of the cost model's doubt; `‡`: one whose sign is not. Nothing else was put to that "
        "test: those figures hold for the cost model as fitted."
    )


def short(found: Estimate) -> str:
    """Write an estimate without its interval, but marked where that spans 1."""
    return markdown.text(found.value) + (
        ALIKE if intervals.compare_with_one(found) == "not distinguishable" else ""
    )


def latencies(study: Study) -> str:
    """Tabulate ratios of latencies on engines with default settings."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.SETTINGS:
        for load in _shown(setting):
            ratios = (short(study.ratio(setting, load, figure)) for _, figure in LATENCIES[1:])
            grows = "yes" if study.grows(setting, load, ("stock", "LARRY")) else "no"
            rows.append((f"{setting.name}: {load:g}", str(study.ratio(setting, load)), *ratios, grows))
    header = ("workload: load", *(name for name, _ in LATENCIES), "queue only grows")
    note = "Where a queue only grows, ratios are of that length of run, which the first lines name."
    return f"{markdown.table(header, rows)}\n\n{note}"


def _shown(setting: Setting) -> list[float]:
    return [load for load in setting.all_loads() if load >= 0.1]


def tuned(study: Study) -> str:
    """Tabulate LARRY and stock, both tuned, and LARRY with default settings against tuned stock."""
    rows: list[Sequence[Cell]] = []
    holds = figures.holds_everywhere(study)
    for setting in cases.SETTINGS:
        for load in _shown(setting):
            mark = {True: " †", False: " ‡", None: ""}[holds.get(f"ttft_mean_{setting.at(load)}")]
            first, *others = (
                study.ratio(setting, load, figure, kind="tuned LARRY", against="tuned stock")
                for _, figure in SHOWN_TUNED
            )
            default = study.ratio(setting, load, against="tuned stock")
            grows = "yes" if study.grows(setting, load, ("tuned stock", "tuned LARRY")) else "no"
            cells = (f"{first}{mark}", *map(short, others), short(default), grows)
            rows.append((f"{setting.name}: {load:g}", *cells))
    header = ("workload: load", *(name for name, _ in SHOWN_TUNED), "default LARRY / tuned stock, mean TTFT")
    return markdown.table((*header, "queue only grows"), rows)


def goodputs(study: Study) -> str:
    """Loads that each sustains at 90 % attainment, and the ratios."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.SWEPT:
        kinds = cases.carrying(setting, study.tunings)
        loads = (_loads(study.goodputs(setting, kind)) for kind in kinds)
        ratios = (
            comparison.shown(study.goodput_ratio(setting, kind, against))
            for kind, against, _ in figures.BESIDE
        )
        rows.append((setting.name, setting.requests, *loads, *ratios))
    names = cases.carrying(cases.CODE, study.tunings)
    header = ("workload: E2E within 5x alone", "requests", *names)
    note = (
        "Loads at which 90 % of the requests meet the target, means over seeds, tuned for just that. `<` and "
        "`>`: beyond the ends of the sweep in some seed, so the ratio is a bound and its brackets hold "
        "for the "
        "bound; `~`: the ratio could be either side of what the sweep shows. No ratio of goodput was put "
        "to the "
        "grid of doubts; what was is one load of code's sweep (below)."
    )
    ratios = (f"{kind} / {against}" for kind, against, _ in figures.BESIDE)
    return f"{markdown.table((*header, *ratios), rows)}\n\n{note}"


def _loads(points: Sequence[Goodput]) -> str:
    bounds = {point.bound for point in points} - {"="}
    mark = bounds.pop() if len(bounds) == 1 else "~" if bounds else ""
    return f"{mark}{intervals.mean([point.load for point in points]).value:.3g}"


def attainment(study: Study, folder: Path) -> tuple[Path, str]:
    """Draw the share of requests within E2E 5x over load."""
    panels = {}
    for setting in cases.SWEPT:
        panels[setting.name.partition(",")[0]] = {
            name: Curve(
                setting.loads,
                [
                    intervals.mean(
                        [
                            comparison.attained(study.found[case], cases.TARGET)
                            for case in comparison.runs(setting, load, kind)
                        ]
                    ).value
                    for load in setting.loads
                ],
            )
            for name, kind in cases.carrying(setting, study.tunings).items()
        }
    title = _carries(study)
    over = "; ".join(
        f"{setting.name.partition(',')[0]}: {comparison.seeds(setting)}" for setting in cases.SWEPT
    )
    caption = (
        "Simulated. Share of requests whose E2E is within 5x of their time alone, none where the queue only "
        f"grew; means over seeds ({over})."
    )
    path = plots.curves(
        folder / "larry_goodput.svg",
        title,
        caption,
        panels,
        x_label="load, of what stock sustains",
        y_label="requests within target",
        level=(comparison.MET, "90 %"),
        percent=True,
    )
    return path, f"{title}. {caption}"


def _carries(study: Study) -> str:
    """Say what the picture's first panel shows, if it shows anything."""
    estimate, bound = study.goodput_ratio(cases.CODE, "tuned LARRY", "tuned stock")
    known = intervals.compare_with_one(estimate, lower_is_better=False) in ("better", "worse")
    if not known or bound == "~":
        return "Requests within their E2E target: stock and LARRY, on default and on tuned engines"
    times = {">": "at least ", "<": "at most "}.get(bound, "") + f"{estimate.value:.1f}x"
    return f"Tuned for it, LARRY carries {times} tuned stock's load of bursty code"


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
    stock = comparison.runs(setting, setting.point)

    def total(runs: Sequence[Case], figure: str) -> float:
        return sum(comparison.values(found, runs, figure))

    full = total(stock, "ttft_mean") - total([cases.larry(case, patience=0) for case in stock], "ttft_mean")
    made = []
    for patience in cases.PATIENCES:
        ours = [cases.larry(case, patience=patience) for case in stock]
        waits = comparison.ratio(found, ours, stock, "wait_max")
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
    names = (f"{each.name}: {each.point:g} ({comparison.seeds(each)})" for each in settings)
    header = ("patience, %", *names)
    return (
        f"{markdown.table(header, rows)}\n\nGain in mean TTFT kept / longest wait as a multiple of stock's."
    )


def rivals(study: Study) -> str:
    """Tabulate every policy against default stock."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.COMPARED:
        named = cases.rivals(setting, study.tunings)
        stock = study.found[named["stock"]]
        for name, case in named.items():
            ours = study.found[case]
            rows.append(
                (
                    f"{setting.name}: {setting.point:g}",
                    name,
                    *(
                        float(ours[figure]) / max(float(stock[figure]), comparison.LEAST)
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
        "Of default stock, one seed; with the settings of tuned stock where it says so. SPF: shortest prompt "
        "first. SRPT serves the least true work left, and "
        "whoever has more pauses for it or gives its KV away; TRAIL has a prediction of it (true length "
        "times a lognormal factor, sigma 0.5) and NoPreempt reserves the true length; only SPF could be run "
        "as it is."
    )
    return f"{markdown.table(header, rows)}\n\n{note}"


def alphas(found: Found) -> str:
    """Mean TTFT and longest wait over alpha, with and without ageing."""
    rows: list[Sequence[Cell]] = []
    for alpha in cases.ALPHAS:
        row: list[Cell] = [f"{alpha:,}"]
        for setting in cases.COMPARED:
            case = setting.case(setting.point, 0)
            for patience in (None, 0):
                ours = found[cases.larry(case, alpha=alpha, patience=patience)]
                ratios = [
                    float(ours[figure]) / max(float(found[case][figure]), comparison.LEAST)
                    for figure in ("ttft_mean", "wait_max")
                ]
                row.append(f"{ratios[0]:.2f} / {ratios[1]:.2f}")
        rows.append(row)
    header = ["alpha"]
    for setting in cases.COMPARED:
        header += [f"{setting.key}: {setting.point:g}", "paper's form"]
    return f"{markdown.table(header, rows)}\n\nMean TTFT / longest wait, of default stock; one seed."
