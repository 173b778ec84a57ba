"""The page and the picture of the study of AccelGen."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from e2e.bench.accelgen import cases, figures
from e2e.bench.accelgen.cases import MIXED, PARTS, accelgen
from e2e.bench.accelgen.figures import Goodputs
from e2e.bench.report import markdown, plots
from e2e.bench.report.markdown import Cell
from e2e.bench.report.plots import Curve
from e2e.bench.runs import comparison, search
from e2e.bench.runs.comparison import Found, Kind
from e2e.bench.runs.setting import Setting
from e2e.bench.runs.workloads import MIX
from headrace_engine.sim.metrics import Goodput

LATENCIES = (
    ("mean TTFT", "ttft_mean"),
    ("p95 TTFT", "ttft_p95"),
    ("p99 TTFT", "ttft_p99"),
    ("mean E2E", "e2e_mean"),
    ("mean TPOT", "tpot_mean"),
    ("p99 TPOT", "tpot_p99"),
    ("longest wait", "wait_max"),
)


_STEPS = "points or percent of requests here, of iterations there"
FINDINGS = {
    "throughput_of_others": (
        "throughput / other systems'",
        "below saturation it is that of the arrivals; prompts there are longer, engines older",
    ),
    "goodput_of_others": (
        "goodput / other systems'",
        "the mix's targets are ours; Orca and FastServe meet few",
    ),
    "attainment_above_others_points": ("attainment: points above other systems", _STEPS),
    "others_e2e_of_ours": (
        "E2E of other systems / ours",
        "Sarathi's small steps end short outputs sooner and miss more TTFT",
    ),
    "goodput_lost_without_order_percent": ("goodput lost without order, percent", _STEPS),
    "goodput_lost_without_chunk_percent": ("goodput lost without chunking, percent", _STEPS),
    "goodput_lost_without_batch_percent": (
        "goodput lost without Algorithm 2, percent",
        "ours picks the shortest of the equally urgent, which is nearly the order by urgency",
    ),
}


def write(found: Found, goodputs: Goodputs, folder: Path) -> Path:
    """Write the whole page; returns its path."""
    return markdown.page(
        "accelgen",
        "AccelGen on one engine",
        _introduction(found),
        "## Targets kept",
        markdown.picture(*attainment(found, folder)),
        goodputs_told(goodputs),
        "## Where tuned stock struggles",
        classes(found),
        "## Latencies against default stock",
        latencies(found),
        "## Its parts, and other systems",
        parts(found),
        "## The paper's findings",
        findings(found),
        "## How sure this is",
        doubts(found),
        folder=folder,
    )


def _introduction(found: Found) -> str:
    mix = "; ".join(
        f"{each.percent} % {each.client} (`{each.lengths}` lengths): {_targets(each)}" for each in MIX
    )
    decides = [each.name for each in cases.SWEPT if comparison.watermark_decides(found, each)]
    watermark = f"decided something on: {', '.join(decides)}" if decides else "changed no decision"
    return (
        f"{comparison.told(cases.SETTINGS)} {comparison.TUNED_STOCK} "
        "Targets: TTFT 1 s and a mean TPOT of 50 ms; TTFT "
        "10 s and 100 ms for Mooncake and the ShareGPT lengths; on the mix each request asks for its own "
        f"({mix}), which is our definition: no trace at hand has targets. A watermark, tried with 8,192 "
        f"tokens a step at the highest load of the four workloads with a goodput, {watermark}. Lengths are "
        "predicted by the engine, step times learned from its own steps. Latencies are of "
        f"{cases.FEW} requests, ablations and other systems of {PARTS.requests}, one seed each."
    )


def _targets(share: object) -> str:
    targets = share.targets  # type: ignore[attr-defined]
    return ", ".join(
        f"{name.upper()} {getattr(targets, name):g} s"
        for name in ("ttft", "tpot", "e2e")
        if getattr(targets, name) is not None
    )


def attainment(found: Found, folder: Path, settings: Sequence[Setting] = cases.SWEPT) -> tuple[Path, str]:
    """Draw the share of requests that met their targets, at the loads of the first seed's searches.

    Each seed's search has loads of its own: a mean over those that were run at a load would jump.
    """
    panels = {}
    for setting in (replace(each, seeds=each.seeds[:1]) for each in settings):
        kinds = {"AccelGen": [accelgen(setting)], "tuned stock": comparison.choices(setting)}
        panels[setting.key] = {name: _curve(found, setting, each) for name, each in kinds.items()}
    title = "Requests that met all their targets"
    caption = "Simulated, first seed. TTFT 1 s and mean TPOT 50 ms; on the mix each request's own targets."
    path = plots.curves(
        folder / "accelgen.svg",
        title,
        caption,
        panels,
        x_label="load, of what stock sustains",
        y_label="requests within target",
        level=(search.MET, "90 %"),
        percent=True,
    )
    return path, f"{title}. {caption}"


def _curve(found: Found, setting: Setting, kinds: Sequence[Kind]) -> Curve:
    """Return the best of these at each load where one was run; the setting has one seed."""
    points = {}
    for load in sorted({*setting.all_loads(), *cases.STEPPED}):
        shares = [share for kind in kinds for share in figures.attained(found, setting, load, kind)]
        if shares:
            points[load] = max(shares)
    return Curve(list(points), list(points.values()))


def goodputs_told(goodputs: Goodputs) -> str:
    """Loads that each sustains with 90 % within all targets."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.SWEPT:
        tuned, ours = (figures.goodputs_of(goodputs, setting, name) for name in ("tuned", "ours"))
        estimate, bound = comparison.ratio_of(ours, tuned)
        shown = "~" if bound == "~" else f"{bound} {estimate}".strip()
        rows.append((setting.name, *map(_load, (tuned, ours)), shown))
    header = ("workload: goodput of each seed", "tuned stock", "AccelGen", "/ tuned stock")
    return markdown.table(header, rows)


def _load(points: Sequence[Goodput]) -> str:
    return ", ".join(f"{point.bound.strip('=')}{point.load:.2f}" for point in points)


def classes(found: Found) -> str:
    """Tabulate attainment on the mix by service and load: tuned stock with the best total, and ours."""
    rows: list[Sequence[Cell]] = []
    for load in cases.STEPPED:
        case = MIXED.case(load, 0)
        best = max(
            (kind(case) for kind in comparison.choices(MIXED)),
            key=lambda each: float(found[each]["met_own"]),
        )
        for name, run in (("tuned stock", best), ("AccelGen", accelgen(MIXED)(case))):
            met = ("met_own", *(f"met_own_{each.client}" for each in MIX))
            shares = (f"{float(found[run][figure]):.0%}" for figure in met)
            rows.append((f"{load:g}: {name}", *shares, float(found[run]["wait_max"])))
    return markdown.table(("load", "all", *(each.client for each in MIX), "longest wait, s"), rows)


def latencies(found: Found) -> str:
    """Tabulate ratios to default stock, one seed."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.BESIDE:
        for load in cases.beside(setting):
            stock, ours = cases.pair(setting, load)
            cells = (comparison.ratio(found, [ours], [stock], figure).value for _, figure in LATENCIES)
            rows.append((f"{setting.name}: {load:g}", *(f"{each:.3f}" for each in cells)))
    return markdown.table(("workload: load", *(name for name, _ in LATENCIES)), rows)


def parts(found: Found) -> str:
    """Tabulate ablations and rivals on the mix at one load, one seed."""
    case = PARTS.case(PARTS.point, 0)
    kinds: dict[str, Kind] = {"AccelGen": accelgen(PARTS), **cases.ablations(), "stock": comparison.stock}
    kinds |= {name: cases.other(name) for name in cases.RIVALS}
    rows: list[Sequence[Cell]] = []
    for name, kind in kinds.items():
        ours = found[kind(case)]
        rows.append(
            (
                name,
                *(
                    f"{float(ours[f'met_own{end}']):.0%}"
                    for end in ("", *(f"_{each.client}" for each in MIX))
                ),
                *(float(ours[figure]) for figure in ("ttft_mean", "e2e_mean", "wait_max")),
                1000 * float(ours["tpot_p99"]),
                f"{float(ours['kv_use']):.0%}",
                int(ours["preemptions"]),
            )
        )
    header = (f"mix, load {PARTS.point:g}", "all", *(each.client for each in MIX))
    times = ("mean TTFT, s", "mean E2E, s", "longest wait, s", "p99 TPOT, ms")
    return markdown.table((*header, *times, "KV in use", "preemptions"), rows)


def findings(found: Found) -> str:
    """Tabulate each finding of the paper, and what we get."""
    note = (
        f"The mix at load {PARTS.point:g}, one seed, over stock, Orca, FastServe and Sarathi with 512 tokens "
        "a step. No row is a reproduction: data, engines, targets and clock differ."
    )
    return (
        f"{markdown.compare_findings(FINDINGS, figures.PAPER, figures.reproduce_findings(found))}\n\n{note}"
    )


def doubts(found: Found) -> str:
    """Tabulate misses over the corners of the grid."""
    corners = [f"x{mixed:g}, +{overhead:g} ms" for mixed, overhead in cases.CORNERS]
    rows = [(name, *(f"{each:.2f}" for each in ratios)) for name, ratios in figures.doubts(found)]
    note = "Targets missed, AccelGen / the best stock there; mixed attention and host time a step, one seed."
    return f"{markdown.table(('finding', *corners), rows)}\n\n{note}"
