"""The page and the picture of the study of AccelGen."""

from collections.abc import Sequence
from pathlib import Path

from e2e.bench.accelgen import cases, figures
from e2e.bench.accelgen.cases import MIXED, PARTS, PARTS_SHORT_OF_KV, accelgen
from e2e.bench.accelgen.figures import Study
from e2e.bench.report import markdown, plots
from e2e.bench.report.markdown import Cell
from e2e.bench.report.plots import Curve
from e2e.bench.runs import comparison, tuning
from e2e.bench.runs.comparison import Found, Kind
from e2e.bench.runs.doubt import CORNERS, TOLD
from e2e.bench.runs.setting import Setting
from e2e.bench.runs.workloads import MIX

LATENCIES = (
    ("mean TTFT", "ttft_mean"),
    ("p95 TTFT", "ttft_p95"),
    ("p99 TTFT", "ttft_p99"),
    ("mean E2E", "e2e_mean"),
    ("mean TPOT", "tpot_mean"),
    ("p99 TPOT", "tpot_p99"),
    ("longest wait", "wait_max"),
)


_REQUESTS = "whole requests within their targets; the paper counts iterations"
_ITERATIONS = "as the paper counts: each token by its own deadline; targets and lengths of the mix are ours"
FINDINGS = {
    "throughput_of_others": (
        "throughput / other systems'",
        "below saturation it is that of the arrivals; prompts there are longer, engines older",
    ),
    "goodput_of_others": (
        "goodput / other systems'",
        "the mix's targets are ours; Orca and FastServe meet few",
    ),
    "attainment_above_others_points": ("attainment of requests: points above other systems", _REQUESTS),
    "iterations_above_others_points": ("attainment of iterations: points above other systems", _ITERATIONS),
    "others_e2e_of_ours": (
        "E2E of other systems / ours",
        "Sarathi's small steps end short outputs sooner and miss more TTFT",
    ),
    **{
        f"{what}_lost_without_{part}_percent": (f"{told} lost without {name}, percent", why)
        for what, told, why in (
            ("goodput", "requests in time", _REQUESTS),
            ("iterations", "iterations in time", _ITERATIONS),
        )
        for part, name in (("order", "order"), ("chunk", "chunking"), ("batch", "Algorithm 2"))
    },
}


def write(study: Study, folder: Path) -> Path:
    """Write the whole page; returns its path."""
    return markdown.page(
        "accelgen",
        "AccelGen on one engine",
        _introduction(study),
        "## Targets kept",
        markdown.picture(*attainment(study, folder)),
        goodputs(study),
        "## Engine settings, tuned",
        tuning.told(study.tunings, cases.SWEPT),
        "## Where tuned stock struggles",
        classes(study),
        "## Latencies against default stock",
        latencies(study.found),
        "## Its parts, and other systems",
        parts(study.found, PARTS),
        parts(study.found, PARTS_SHORT_OF_KV),
        "## The paper's findings",
        findings(study.found),
        "## How sure this is",
        doubts(study),
        folder=folder,
    )


def _introduction(study: Study) -> str:
    mix = "; ".join(
        f"{each.percent} % {each.client} (`{each.lengths}` lengths): {_targets(each)}" for each in MIX
    )
    decides = [
        each.name
        for each in map(cases.one_seed, cases.SWEPT)
        if comparison.watermark_decides(
            study.found, each, cases.tuned(each, "stock", cases.target_of(each), study.tunings)
        )
    ]
    watermark = f"decided something on: {', '.join(decides)}" if decides else "changed no decision"
    return (
        f"{comparison.told(cases.SETTINGS)} {comparison.TUNED} {comparison.STEADY} "
        "Targets: TTFT 1 s and a mean TPOT of 50 ms; TTFT "
        "10 s and 100 ms for Mooncake and the ShareGPT lengths; on the mix each request asks for its own "
        f"({mix}), which is our definition: no trace at hand has targets. A watermark of "
        f"{comparison.WATERMARK:.0%}, tried with tuned stock at the highest load of the four workloads "
        "with a "
        f"goodput, {watermark}. Lengths are predicted by the engine, step times learned from its own steps."
    )


def _targets(share: object) -> str:
    targets = share.targets  # type: ignore[attr-defined]
    return ", ".join(
        f"{name.upper()} {getattr(targets, name):g} s"
        for name in ("ttft", "tpot", "e2e")
        if getattr(targets, name) is not None
    )


def attainment(study: Study, folder: Path) -> tuple[Path, str]:
    """Draw the share of requests that met their targets, at the loads of the first seed's searches.

    Each seed's search has loads of its own: a mean over those that were run at a load would jump.
    """
    panels = {}
    for setting in cases.SWEPT:
        target = cases.target_of(setting)
        names = {"stock": "tuned stock", "accelgen": "tuned AccelGen"}
        kinds = cases.kinds(setting, target, study.tunings)
        panels[setting.key] = {
            shown: _curve(study.found, setting, kinds[name], target) for name, shown in names.items()
        }
    title = "Requests that met all their targets"
    caption = (
        "Simulated, first seed; none where the queue only grew. TTFT 1 s and mean TPOT 50 ms; on the mix "
        "each "
        "request's own targets."
    )
    path = plots.curves(
        folder / "accelgen.svg",
        title,
        caption,
        panels,
        x_label="load, of what stock sustains",
        y_label="requests within target",
        level=(comparison.MET, "90 %"),
        percent=True,
    )
    return path, f"{title}. {caption}"


def _curve(found: Found, setting: Setting, kind: Kind, target: str) -> Curve:
    """Return the first seed's attainment at each load where it was run."""
    points = {
        load: comparison.attained(found[case], target)
        for load in sorted({*setting.all_loads(), *cases.STEPPED})
        for case in comparison.runs(setting, load, kind, 1)
        if case in found
    }
    return Curve(list(points), list(points.values()))


def goodputs(study: Study) -> str:
    """Tabulate the loads that each sustains with 90 % within all targets."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.SWEPT:
        for target in cases.targets_of(setting):
            stock, ours, default = (study.of(setting, target, kind) for kind in cases.COMPARED)
            rows.append(
                (
                    setting.name + (": worst class" if target == cases.WORST else ""),
                    setting.requests,
                    *map(comparison.loads_of, (stock, ours)),
                    *(comparison.shown(comparison.ratio_of(each, stock)) for each in (ours, default)),
                )
            )
    header = ("workload: goodput of each seed", "requests", "tuned stock", "tuned AccelGen")
    return markdown.table((*header, "/ tuned stock", "on a default engine / tuned stock"), rows)


def classes(study: Study) -> str:
    """Tabulate attainment on the mix by service and load, one seed."""
    rows: list[Sequence[Cell]] = []
    for load in cases.STEPPED:
        for name, kind in cases.classes(study.tunings).items():
            runs = comparison.runs(MIXED, load, kind, 1)
            run = study.found[runs[0]]
            met = ("met_own", f"met_{cases.WORST}", *(f"met_own_{each.client}" for each in MIX))
            shares = (f"{float(run[figure]):.0%}" for figure in met)
            grows = "yes" if comparison.grows(study.found, runs) else "no"
            rows.append((f"{load:g}: {name}", *shares, float(run["wait_max"]), grows))
    header = ("load", "all", "worst class", *(each.client for each in MIX), "longest wait, s")
    note = f"One seed of {MIXED.requests:,} requests."
    return f"{markdown.table((*header, 'queue only grows'), rows)}\n\n{note}"


def latencies(found: Found) -> str:
    """Tabulate ratios to default stock, one seed."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.BESIDE:
        for load in cases.beside(setting):
            stock, ours = cases.pair(setting, load)
            cells = (comparison.ratio(found, [ours], [stock], figure).value for _, figure in LATENCIES)
            grows = "yes" if comparison.grows(found, [stock, ours]) else "no"
            name = f"{setting.name}: {load:g}"
            rows.append((name, setting.requests, *(f"{each:.3f}" for each in cells), grows))
    note = "One seed; where a queue only grows, ratios are of that length of run."
    header = ("workload: load", "requests", *(name for name, _ in LATENCIES), "queue only grows")
    return f"{markdown.table(header, rows)}\n\n{note}"


def parts(found: Found, setting: Setting) -> str:
    """Tabulate ablations and rivals on a mix at one load, one seed."""
    case = setting.case(setting.point, 0)
    kinds: dict[str, Kind] = {"AccelGen": accelgen(setting), **cases.ablations(setting)}
    kinds |= {"stock": comparison.stock, **{name: comparison.other(name) for name in cases.RIVALS}}
    rows: list[Sequence[Cell]] = []
    for name, kind in kinds.items():
        ours = found[kind(case)]
        rows.append(
            (
                name,
                *(
                    f"{float(ours[f'met_own{end}']):.0%}"
                    for end in ("", *(f"_{each.client}" for each in MIX), "_iterations")
                ),
                *(float(ours[figure]) for figure in ("ttft_mean", "e2e_mean", "wait_max")),
                1000 * float(ours["tpot_p99"]),
                f"{float(ours['kv_use']):.0%}",
                int(ours["preemptions"]),
            )
        )
    shares = ("all", *(each.client for each in MIX), "iterations")
    header = (f"{setting.engine}: mix, load {setting.point:g}", *shares)
    times = ("mean TTFT, s", "mean E2E, s", "longest wait, s", "p99 TPOT, ms")
    return markdown.table((*header, *times, "KV in use", "preemptions"), rows)


def findings(found: Found) -> str:
    """Tabulate each finding of the paper, and what we get by its algorithms and by ours."""
    setting = PARTS_SHORT_OF_KV
    note = (
        f"The mix at load {setting.point:g} where KV binds, one seed of {setting.requests:,} requests, "
        "over stock, "
        "Orca, FastServe and Sarathi with 512 tokens a step. *As published*: Algorithms 1 and 2 and "
        "skipping, no "
        "ageing. No row is a reproduction: data, engines, targets and clock differ."
    )
    table = markdown.compare_findings(FINDINGS, figures.PAPER, figures.reproduce_findings(found))
    return f"{table}\n\n{note}"


def doubts(study: Study) -> str:
    """Tabulate misses over the corners of the grid."""
    rows = [(name, *(f"{each:.2f}" for each in ratios)) for name, ratios in figures.doubts(study)]
    note = f"Targets missed, AccelGen / tuned stock, one seed: {TOLD}."
    return f"{markdown.table(('finding', *map(str, CORNERS)), rows)}\n\n{note}"
