"""The page and the picture of the study of EconoServe."""

from collections.abc import Sequence
from pathlib import Path

from e2e.bench.econoserve import cases, figures
from e2e.bench.econoserve.cases import KV, LIVE, OURS
from e2e.bench.report import markdown, plots
from e2e.bench.report.markdown import Cell
from e2e.bench.report.plots import Curve
from e2e.bench.runs import comparison
from e2e.bench.runs.comparison import Found, Kind
from e2e.bench.runs.engine import DISTSERVE, E2E_SCALES, Case
from e2e.bench.runs.setting import Setting
from headrace_engine.sim.metrics import Goodput

LATENCIES = (
    ("E2E per token", "normalized_mean"),
    ("mean E2E", "e2e_mean"),
    ("p95 E2E", "e2e_p95"),
    ("p99 E2E", "e2e_p99"),
    ("mean TTFT", "ttft_mean"),
    ("p99 TPOT", "tpot_p99"),
    ("longest wait", "wait_max"),
)
_VARIANT = "mean E2E of the variant / of Full, both as published, at load 1; vLLM allots by the block"
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


def write(found: Found, folder: Path) -> Path:
    """Write the whole page; returns its path."""
    return markdown.page(
        "econoserve",
        "EconoServe on one engine",
        _introduction(found),
        "## Goodput where KV binds",
        markdown.picture(*attainment(found, folder)),
        goodputs(found),
        "## Latencies against tuned stock",
        latencies(found),
        "## Its parts, and what waiting costs",
        parts(found),
        "## The scale of the deadline",
        scales(found),
        "## Other systems",
        rivals(found),
        "## The paper's findings",
        findings(found),
        "## Where nothing queues",
        light(found),
        "## How sure this is",
        doubts(found),
        folder=folder,
    )


def _introduction(found: Found) -> str:
    decides = "decides" if comparison.watermark_decides(found, KV) else "decides nothing"
    return (
        f"{comparison.told(cases.SETTINGS)} {comparison.TUNED_STOCK} "
        f"A watermark {decides} where KV binds. Lengths "
        "are told, and 75 % of them are right, the others any of the workload's; *live*: predicted by the "
        "engine from its own traffic. Alpaca and BookCorpus are synthetic: drawn from what the paper's table "
        "says of them, cut to OPT's context. Ratios are ours / tuned stock; brackets are 95 % intervals over "
        "seeds."
    )


def attainment(found: Found, folder: Path, setting: Setting = KV) -> tuple[Path, str]:
    """Draw the share of requests within twice their time alone, over load."""
    kinds: dict[str, Kind] = {"stock": comparison.stock, "EconoServe": OURS, "live": LIVE}
    lines = {
        name: Curve(
            setting.loads,
            [
                comparison.mean(found, comparison.runs(setting, load, kind), "met_e2e_2x")
                for load in setting.loads
            ],
        )
        for name, kind in kinds.items()
    }
    lines["tuned stock"] = Curve(
        setting.loads, [comparison.best_met(found, setting, load, "e2e_2x") for load in setting.loads]
    )
    title = "Requests within twice their time alone, where KV binds"
    caption = (
        f"Simulated: {setting.name}, {len(setting.seeds)} seeds. 75 % of the lengths right; live: predicted."
    )
    path = plots.curves(
        folder / "econoserve.svg",
        title,
        caption,
        {"ShareGPT lengths": lines},
        x_label="load, of what stock sustains",
        y_label="requests within target",
        level=(0.9, "90 %"),
        percent=True,
    )
    return path, f"{title}. {caption}"


def goodputs(found: Found) -> str:
    """Loads that each sustains with 90 % within the target."""
    rows: list[Sequence[Cell]] = []
    kinds = {"75 % right": OURS, "live": LIVE, **cases.CLAIRVOYANTS}
    for target, name in (("e2e_2x", "E2E within 2x alone"), ("e2e", "E2E within 5x alone")):
        tuned = comparison.tuned_goodputs(found, KV, target)
        rows.append((f"{name}: tuned stock", _load(tuned), None))
        for each, kind in kinds.items():
            points = comparison.goodputs(found, KV, target, kind)
            estimate, bound = comparison.ratio_of(points, tuned)
            rows.append(
                (f"{name}: {each}", _load(points), "~" if bound == "~" else f"{bound} {estimate}".strip())
            )
    return markdown.table(("target: policy", "load", "/ tuned stock"), rows)


def _load(points: Sequence[Goodput]) -> str:
    return ", ".join(f"{point.bound.strip('=')}{point.load:.2f}" for point in points)


def latencies(found: Found) -> str:
    """Tabulate the ratios of latencies at each load."""
    rows: list[Sequence[Cell]] = []
    for setting in (cases.KV, cases.ALPACA, cases.BOOKCORPUS):
        for load in setting.loads:
            for name, kind in (("75 % right", OURS), ("live", LIVE)):
                ours = comparison.runs(setting, load, kind)
                cells = [
                    comparison.ratio(found, ours, comparison.best(found, setting, load, figure), figure)
                    for _, figure in LATENCIES
                ]
                rows.append((f"{setting.name}: {load:g}, {name}", *(f"{each.value:.2f}" for each in cells)))
    return markdown.table(("workload: load, lengths", *(name for name, _ in LATENCIES)), rows)


def parts(found: Found) -> str:
    """Tabulate variants, patience and accuracy at the point; preemptions are of a run."""
    rows: list[Sequence[Cell]] = []
    stock = comparison.best(found, KV, KV.point, "normalized_mean")
    for name, kind in {"EconoServe": OURS, "live": LIVE, **cases.CLAIRVOYANTS, **cases.at_point()}.items():
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
    rows.append(
        (
            "tuned stock",
            *["1"] * 4,
            *(_percent(found, stock, figure) for figure in ("met_e2e_2x", "met_e2e", "kv_use")),
            round(comparison.mean(found, stock, "preemptions")),
        )
    )
    header = ("at load 1", "E2E per token", "mean E2E", "mean TTFT", "longest wait")
    return markdown.table((*header, "E2E within 2x", "within 5x", "KV in use", "preemptions"), rows)


def _percent(found: Found, runs: Sequence[Case], figure: str) -> str:
    return f"{comparison.mean(found, runs, figure):.0%}"


def scales(found: Found) -> str:
    """Tabulate attainment at the point for each scale, one seed; the policy is told the scale."""
    rows: list[Sequence[Cell]] = []
    for scale in sorted((*E2E_SCALES, 2.0)):
        target = "e2e_2x" if scale == 2 else f"e2e_{scale * 100:.0f}"
        ours = found[comparison.runs(KV, KV.point, cases.econoserve(slo=target), 1)[0]]
        best = max(
            float(found[comparison.runs(KV, KV.point, kind, 1)[0]][f"met_{target}"])
            for kind in comparison.choices(KV)
        )
        rows.append((f"{scale:g}x alone", f"{best:.0%}", f"{float(ours[f'met_{target}']):.0%}"))
    return markdown.table(("E2E within", "tuned stock", "EconoServe"), rows)


def rivals(found: Found) -> str:
    """Tabulate every system at its loads, one seed."""
    rows: list[Sequence[Cell]] = []
    loads = {
        **dict.fromkeys(cases.RESERVING, cases.LOW_LOADS),
        **dict.fromkeys(cases.ONE_GPU, KV.loads),
        DISTSERVE: cases.PAIR_LOADS,
    }
    kinds: dict[str, Kind] = {name: cases.other(name) for name in loads}
    kinds |= {"stock": comparison.stock, "EconoServe": OURS}
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
        "One seed. Orca, SRTF and FastServe keep the model's whole context for each request; they serve "
        f"{cases.FEW} requests. DistServe is two GPUs, its load that of both together, KV at 300 GB/s; "
        "`sim/disaggregated.py` says what is modelled."
    )
    header = ("system: load", "E2E per token, s", "mean E2E, s", "longest wait, s", "E2E within 2x")
    return f"{markdown.table((*header, 'KV in use', 'preemptions'), rows)}\n\n{note}"


def findings(found: Found) -> str:
    """Tabulate each finding of the paper, and what we get."""
    note = (
        "No row is a reproduction: data, engine and clock differ. A rate is the load up to which the mean "
        "E2E per token stays at twice that of stock at half load, one seed."
    )
    return (
        f"{markdown.compare_findings(FINDINGS, figures.PAPER, figures.reproduce_findings(found))}\n\n{note}"
    )


def light(found: Found) -> str:
    """Tabulate live lengths / default stock at loads up to a half, and at saturation on modern engines."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.SETTINGS:
        for load in setting.all_loads():
            if load <= comparison.LIGHT or setting in cases.MODERN:
                pair = comparison.runs(setting, load, LIVE), comparison.runs(setting, load)
                cells = (comparison.ratio(found, *pair, figure).value for _, figure in LATENCIES)
                rows.append((f"{setting.name}: {load:g}", *(f"{each:.3f}" for each in cells)))
    return markdown.table(("workload: load, live / default stock", *(name for name, _ in LATENCIES)), rows)


def doubts(found: Found) -> str:
    """Make the table of the finding over the corners of the grid."""
    rows = [(name, f"{value:.2f}") for name, value in figures.doubts(found)]
    return markdown.table(("E2E per token at load 1, one seed", "ours / better stock"), rows)
