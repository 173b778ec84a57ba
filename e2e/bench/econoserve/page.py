"""The page and the picture of the study of EconoServe."""

from collections.abc import Sequence
from pathlib import Path

from e2e.bench.econoserve import cases, figures
from e2e.bench.econoserve.cases import GOODPUT, KV, LATENCY, LIVE, TOLD
from e2e.bench.report import markdown, plots
from e2e.bench.report.markdown import Cell
from e2e.bench.report.plots import Curve
from e2e.bench.runs import comparison, tuning
from e2e.bench.runs.comparison import Found, Kind
from e2e.bench.runs.engine import DISTSERVE, Case
from e2e.bench.runs.tuning import Tunings

LATENCIES = (
    ("E2E per token", "normalized_mean"),
    ("mean E2E", "e2e_mean"),
    ("p95 E2E", "e2e_p95"),
    ("p99 E2E", "e2e_p99"),
    ("mean TTFT", "ttft_mean"),
    ("p99 TPOT", "tpot_p99"),
    ("longest wait", "wait_max"),
)
_VARIANT = "mean E2E of the variant / of Full, all as published, at load 1; vLLM allots by the block"
FINDINGS = {
    "rate_of_stock": (
        "rate / vLLM's",
        "the paper's vLLM swaps KV and plans without chunks; ours is vLLM 0.32",
    ),
    "rate_of_orca": ("rate / Orca's", "Orca runs eight at once here too; the rest is the older engine"),
    "rate_of_sarathi": (
        "rate / Sarathi-Serve's",
        "its chunks and their budget are in today's vLLM; budget 512 here",
    ),
    "rate_of_distserve_on_two_gpus": (
        "rate of two GPUs / DistServe's on two",
        "a simulated pair with a free hand-over, see `sim/disaggregated.py`",
    ),
    "e2e_2x_attainment_below_oracle_points": (
        "E2E within 2x: points below Oracle",
        "the paper's means over its data; lengths here are 75 % right",
    ),
    "e2e_of_variant_d": ("E2E of D / Full", _VARIANT),
    "e2e_of_variant_sd": ("E2E of SD / Full", _VARIANT),
    "e2e_of_variant_sdo": ("E2E of SDO / Full", _VARIANT),
    "kv_use_above_stock_points": (
        "KV in use: points above vLLM",
        "stock already fills the cache when it queues",
    ),
    "multires_e2e_of_stock": (
        "E2E of MultiRes / vLLM",
        "planning takes no time here; it took a third of MultiRes's E2E in the paper",
    ),
}


def write(found: Found, tunings: Tunings, folder: Path) -> Path:
    """Write the whole page; returns its path."""
    return markdown.page(
        "econoserve",
        "EconoServe on one engine",
        _introduction(found, tunings),
        "## Goodput where KV binds",
        markdown.picture(*attainment(found, tunings, folder)),
        goodputs(found, tunings),
        "## Engine settings, tuned",
        tuning.told(tunings, cases.SETTINGS),
        "## Latencies against tuned stock",
        latencies(found, tunings),
        "## Its parts, and what waiting costs",
        parts(found, tunings),
        "## The scale of the deadline",
        scales(found, tunings),
        "## Other systems",
        rivals(found),
        "## The paper's findings",
        findings(found),
        "## Where nothing queues",
        light(found),
        "## How sure this is",
        doubts(found, tunings),
        folder=folder,
    )


def _introduction(found: Found, tunings: Tunings) -> str:
    stock = cases.tuned_stock(KV, GOODPUT, tunings)
    decides = "decides" if comparison.watermark_decides(found, KV, stock) else "decides nothing"
    return (
        f"{comparison.told(cases.SETTINGS)} {comparison.TUNED} {comparison.STEADY} "
        f"A watermark {decides} where KV binds. Lengths "
        "are *live*, predicted by the engine from its own traffic as in production, where nothing else is "
        "said; *75 % right*: told, and 75 % of them are right, the others any of the workload's, as in the "
        "paper. Alpaca and BookCorpus are synthetic: drawn from what the paper's table says of them, cut to "
        "OPT's context. Ratios are ours / tuned stock; brackets are 95 % intervals over seeds."
    )


def attainment(found: Found, tunings: Tunings, folder: Path) -> tuple[Path, str]:
    """Draw the share of requests within twice their time alone, over load."""
    named = cases.compared(tunings)
    kinds: dict[str, Kind] = {
        "EconoServe, live": named["live"],
        "75 % right": named["75 % right"],
        "tuned stock": cases.tuned_stock(KV, GOODPUT, tunings),
        "default stock": comparison.stock,
    }
    lines = {
        name: Curve(
            KV.loads,
            [
                comparison.mean(found, comparison.runs(KV, load, kind), f"met_{cases.TARGET}")
                for load in KV.loads
            ],
        )
        for name, kind in kinds.items()
    }
    title = "Requests within twice their time alone, where KV binds"
    caption = (
        f"Simulated: {KV.name}, {comparison.size(KV)}. EconoServe on an engine tuned as stock is; live: "
        "lengths predicted, 75 % right: told."
    )
    path = plots.curves(
        folder / "econoserve.svg",
        title,
        caption,
        {"ShareGPT lengths": lines},
        x_label="load, of what stock sustains",
        y_label="requests within target",
        level=(comparison.MET, "90 %"),
        percent=True,
    )
    return path, f"{title}. {caption}"


def goodputs(found: Found, tunings: Tunings) -> str:
    """Loads that each sustains with 90 % within the target."""
    stock = comparison.goodputs(found, KV, cases.TARGET, cases.tuned_stock(KV, GOODPUT, tunings))
    rows: list[Sequence[Cell]] = [("tuned stock", KV.requests, comparison.loads_of(stock), None)]
    for name, kind in cases.compared(tunings).items():
        points = comparison.goodputs(found, KV, cases.TARGET, kind)
        shown = comparison.shown(comparison.ratio_of(points, stock))
        rows.append((name, KV.requests, comparison.loads_of(points), shown))
    header = ("E2E within 2x alone: policy", "requests", "load", "/ tuned stock")
    return markdown.table(header, rows)


def latencies(found: Found, tunings: Tunings) -> str:
    """Tabulate the ratios of latencies at each load."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.TUNED:
        kinds = {"live": cases.tuned(LIVE, setting, LATENCY, tunings)}
        kinds |= {"live, default engine": LIVE, "75 % right, default engine": TOLD}
        for load in setting.loads:
            stock = comparison.runs(setting, load, cases.tuned_stock(setting, LATENCY, tunings))
            for name, kind in kinds.items():
                ours = comparison.runs(setting, load, kind)
                cells = (comparison.ratio(found, ours, stock, figure).value for _, figure in LATENCIES)
                grows = "yes" if comparison.grows(found, [*ours, *stock]) else "no"
                rows.append((f"{setting.name}: {load:g}, {name}", *(f"{each:.2f}" for each in cells), grows))
    header = ("workload: load, lengths", *(name for name, _ in LATENCIES), "queue only grows")
    note = "Stock is tuned by E2E per token. Where a queue only grows, ratios are of that length of run."
    return f"{markdown.table(header, rows)}\n\n{note}"


def parts(found: Found, tunings: Tunings) -> str:
    """Tabulate variants, patience and accuracy at the point; preemptions are of a run."""
    rows: list[Sequence[Cell]] = []
    best = cases.tuned_stock(KV, LATENCY, tunings)
    stock = comparison.runs(KV, KV.point, best)
    tuned = {"live, tuned engine": cases.tuned(LIVE, KV, LATENCY, tunings), "tuned stock": best}
    for name, kind in {"live": LIVE, **cases.at_point(), **cases.CLAIRVOYANTS, **tuned}.items():
        runs = comparison.runs(KV, KV.point, kind)
        rows.append(
            (
                name,
                *(
                    f"{comparison.ratio(found, runs, stock, figure).value:.2f}"
                    for figure in ("normalized_mean", "e2e_mean", "ttft_mean", "wait_max")
                ),
                *(_percent(found, runs, figure) for figure in ("met_e2e_2x", "met_e2e", "kv_use")),
                round(comparison.mean(found, runs, "preemptions")),
            )
        )
    header = ("at load 1", "E2E per token", "mean E2E", "mean TTFT", "longest wait")
    note = (
        "On engines with default settings where nothing else is said; patience, order and variants with 75 % "
        "of the lengths right."
    )
    table = markdown.table((*header, "E2E within 2x", "within 5x", "KV in use", "preemptions"), rows)
    return f"{table}\n\n{note}"


def _percent(found: Found, runs: Sequence[Case], figure: str) -> str:
    return f"{comparison.mean(found, runs, figure):.0%}"


def scales(found: Found, tunings: Tunings) -> str:
    """Tabulate attainment at the point for each scale, one seed; the policy is told the scale."""
    rows: list[Sequence[Cell]] = []
    [stock] = comparison.runs(KV, KV.point, cases.tuned_stock(KV, GOODPUT, tunings), 1)
    for scale, kind in cases.scaled().items():
        figure = "met_e2e_2x" if scale == 2 else f"met_e2e_{scale * 100:.0f}"
        [ours] = comparison.runs(KV, KV.point, cases.tuned(kind, KV, GOODPUT, tunings), 1)
        rows.append((f"{scale:g}x alone", *(f"{float(found[case][figure]):.0%}" for case in (stock, ours))))
    note = "Both tuned for goodput within twice the time alone; lengths live."
    return f"{markdown.table(('E2E within', 'tuned stock', 'EconoServe'), rows)}\n\n{note}"


def rivals(found: Found) -> str:
    """Tabulate every system at its loads, one seed."""
    rows: list[Sequence[Cell]] = []
    loads = {
        **dict.fromkeys(cases.RESERVING, cases.LOW_LOADS),
        **dict.fromkeys(cases.ONE_GPU, KV.loads),
        DISTSERVE: cases.PAIR_LOADS,
    }
    kinds: dict[str, Kind] = {name: cases.other(name) for name in loads}
    kinds |= {"stock": comparison.stock, "EconoServe as published": cases.PUBLISHED, "EconoServe": TOLD}
    for name, kind in kinds.items():
        for load in loads.get(name, KV.loads):
            ours = found[kind(KV.case(load, 0))]
            rows.append(
                (
                    f"{name}: {load:g}",
                    float(ours["normalized_mean"]),
                    float(ours["e2e_mean"]),
                    float(ours["wait_max"]),
                    f"{float(ours['met_e2e_2x']):.0%}",
                    f"{float(ours['kv_use']):.0%}",
                    int(ours["preemptions"]),
                )
            )
    note = (
        f"One seed of {KV.requests:,} requests, engines with default settings, EconoServe with 75 % of the "
        "lengths right. Orca, SRTF and FastServe keep the model's whole context for each request; they serve "
        f"{cases.FEW} requests. DistServe is two GPUs, its load that of both together, KV at 300 GB/s; "
        "`sim/disaggregated.py` says what is modelled."
    )
    header = ("system: load", "E2E per token, s", "mean E2E, s", "longest wait, s", "E2E within 2x")
    return f"{markdown.table((*header, 'KV in use', 'preemptions'), rows)}\n\n{note}"


def findings(found: Found) -> str:
    """Tabulate each finding of the paper, and what we get by its algorithms and by ours."""
    note = (
        "*As published*: the paper's Full. Both have 75 % of the lengths right. No row is a "
        "reproduction: data, "
        "engine and clock differ. A rate is the load up to which the mean E2E per token stays at twice "
        "that of "
        "stock at half load, one seed."
    )
    got = {name: figures.reproduce_findings(found, *each) for name, each in figures.BY.items()}
    return f"{markdown.compare_findings(FINDINGS, figures.PAPER, got)}\n\n{note}"


def light(found: Found) -> str:
    """Tabulate live lengths / default stock at loads up to a half, and at saturation on modern engines."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.SETTINGS:
        for load in setting.all_loads():
            if load <= comparison.LIGHT or setting in cases.MODERN:
                pair = comparison.runs(setting, load, LIVE), comparison.runs(setting, load)
                cells = (comparison.ratio(found, *pair, figure).value for _, figure in LATENCIES)
                grows = "yes" if comparison.grows(found, [*pair[0], *pair[1]]) else "no"
                rows.append((f"{setting.name}: {load:g}", *(f"{each:.3f}" for each in cells), grows))
    header = ("workload: load, live / default stock", *(name for name, _ in LATENCIES), "queue only grows")
    return markdown.table(header, rows)


def doubts(found: Found, tunings: Tunings) -> str:
    """Make the table of the finding over the corners of the grid."""
    rows = [(name, f"{value:.2f}") for name, value in figures.doubts(found, tunings)]
    return markdown.table(("E2E per token at load 1, one seed", "live / tuned stock"), rows)
