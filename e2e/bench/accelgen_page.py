"""The page and the picture of the study of AccelGen."""

from collections.abc import Sequence
from pathlib import Path

from e2e.bench import accelgen as study
from e2e.bench import accelgen_cases as cases
from e2e.bench import plots, report, versus
from e2e.bench.accelgen_cases import MIXED, accelgen
from e2e.bench.larry_cases import Setting
from e2e.bench.plots import Curve
from e2e.bench.report import Cell
from e2e.bench.versus import Found, Kind
from e2e.bench.workloads import MIX
from headrace_engine.sim.metrics import Goodput

LATENCIES = (
    ("mean TTFT", "ttft_mean"),
    ("p95 TTFT", "ttft_p95"),
    ("p99 TTFT", "ttft_p99"),
    ("mean JCT", "jct_mean"),
    ("mean TBT", "tbt_mean"),
    ("p99 TBT", "tbt_p99"),
    ("longest wait", "wait_max"),
)


def write(found: Found, folder: Path) -> Path:
    """The whole page; returns its path."""
    return report.page(
        "accelgen",
        "AccelGen on one engine",
        _introduction(found),
        "## Targets kept",
        report.picture(*attainment(found, folder)),
        goodputs(found),
        "## Where tuned stock struggles",
        classes(found),
        "## Latencies against default stock",
        latencies(found),
        "## Its parts, and other systems",
        parts(found),
        "## The paper's claims",
        claims(found),
        "## How sure this is",
        doubts(found),
        folder=folder,
    )


def _introduction(found: Found) -> str:
    names = "; ".join(
        f"{each.name} ({len(each.seeds)} seed{'s' * (len(each.seeds) > 1)})" for each in cases.SETTINGS
    )
    mix = "; ".join(
        f"{each.percent} % {each.client} (`{each.lengths}` lengths): {_targets(each)}" for each in MIX
    )
    decides = [each.name for each in cases.SWEPT if versus.watermark_decides(found, each)]
    watermark = f"decided something on: {', '.join(decides)}" if decides else "changed no decision"
    return (
        f"Workloads: {names}. Targets: TTFT 1 s and a mean TBT of 50 ms; TTFT 10 s and 100 ms for Mooncake "
        "and the "
        f"ShareGPT lengths; on the mix each request asks for its own ({mix}), which is our definition: no "
        "trace "
        "at hand has targets. Load 1 is what default stock vLLM sustains. *Tuned* stock is the best, for "
        "that row, "
        "of step budgets 8,192, 2,048 and 1,024; a 5 % watermark, tried with each at the highest load, "
        f"{watermark}. Lengths are predicted by the engine, step times learned from its own steps."
    )


def _targets(share: object) -> str:
    targets = share.targets  # type: ignore[attr-defined]
    return ", ".join(
        f"{name.upper()} {getattr(targets, name):g} s"
        for name in ("ttft", "tbt", "jct")
        if getattr(targets, name) is not None
    )


def attainment(found: Found, folder: Path, settings: Sequence[Setting] = cases.SWEPT) -> tuple[Path, str]:
    """Share of requests that met their targets, over load."""
    panels = {}
    for setting in settings:
        target = cases.target_of(setting)
        kinds: dict[str, Kind] = {"stock": versus.stock, "AccelGen": accelgen(setting)}
        lines = {
            name: Curve(setting.loads, [study.attained(found, setting, load, kind) for load in setting.loads])
            for name, kind in kinds.items()
        }
        tuned = [versus.best_met(found, setting, load, target) for load in setting.loads]
        lines["tuned stock"] = Curve(setting.loads, tuned)
        panels[setting.key] = lines
    title = "Requests that met all their targets"
    caption = "Simulated. TTFT 1 s and mean TBT 50 ms; on the mix each request's own targets."
    path = plots.curves(
        folder / "accelgen.svg",
        title,
        caption,
        panels,
        x_label="load, of what stock sustains",
        y_label="requests within target",
        level=(study.MET, "90 %"),
        percent=True,
    )
    return path, f"{title}. {caption}"


def goodputs(found: Found) -> str:
    """Loads that each sustains with 90 % within all targets."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.SWEPT:
        target = cases.target_of(setting)
        kind = accelgen(setting)
        ours = versus.goodputs(found, setting, target, kind)
        tuned = versus.tuned_goodputs(found, setting, target)
        estimate, bound = versus.ratio_of(ours, tuned)
        stock = versus.goodputs(found, setting, target, versus.stock)
        shown = "~" if bound == "~" else f"{bound} {estimate}".strip()
        rows.append((setting.name, *map(_load, (stock, tuned, ours)), shown))
    return report.table(("workload", "stock", "tuned stock", "AccelGen", "/ tuned stock"), rows)


def _load(points: Sequence[Goodput]) -> str:
    return ", ".join(f"{point.bound.strip('=')}{point.load:.2f}" for point in points)


def classes(found: Found) -> str:
    """Attainment on the mix by service, at each load: tuned stock with the best total, and ours."""
    rows: list[Sequence[Cell]] = []
    for load in MIXED.loads:
        best = max(
            (versus.runs(MIXED, load, kind) for kind in versus.choices(MIXED)),
            key=lambda runs: sum(versus.values(found, runs, "met_asked")),
        )
        for name, runs in (("tuned stock", best), ("AccelGen", versus.runs(MIXED, load, accelgen(MIXED)))):
            cells = []
            for figure in ("met_asked", *(f"met_asked_{each.client}" for each in MIX)):
                shares = versus.values(found, runs, figure)
                cells.append(f"{sum(shares) / len(shares):.0%}")
            rows.append((f"{load:g}: {name}", *cells, max(versus.values(found, runs, "wait_max"))))
    return report.table(("load", "all", *(each.client for each in MIX), "longest wait, s"), rows)


def latencies(found: Found) -> str:
    """Ratios to default stock at every load."""
    rows: list[Sequence[Cell]] = []
    for setting in cases.SETTINGS:
        for load in setting.all_loads():
            ours, stock = versus.runs(setting, load, accelgen(setting)), versus.runs(setting, load)
            cells = (versus.ratio(found, ours, stock, figure).value for _, figure in LATENCIES)
            rows.append((f"{setting.name}: {load:g}", *(f"{each:.3f}" for each in cells)))
    return report.table(("workload: load", *(name for name, _ in LATENCIES)), rows)


def parts(found: Found) -> str:
    """Ablations and rivals on the mix at one load, one seed."""
    case = MIXED.case(MIXED.point, 0)
    kinds: dict[str, Kind] = {"AccelGen": accelgen(MIXED), **cases.ablations(), "stock": versus.stock}
    kinds |= {name: cases.other(name) for name in cases.RIVALS}
    rows: list[Sequence[Cell]] = []
    for name, kind in kinds.items():
        ours = found[kind(case)]
        rows.append(
            (
                name,
                *(
                    f"{float(ours[f'met_asked{end}']):.0%}"
                    for end in ("", *(f"_{each.client}" for each in MIX))
                ),
                *(float(ours[figure]) for figure in ("ttft_mean", "jct_mean", "wait_max")),
                1000 * float(ours["tbt_p99"]),
                f"{float(ours['kv_use']):.0%}",
                int(ours["preemptions"]),
            )
        )
    header = (f"mix, load {MIXED.point:g}", "all", *(each.client for each in MIX))
    times = ("mean TTFT, s", "mean JCT, s", "longest wait, s", "p99 TBT, ms")
    return report.table((*header, *times, "KV in use", "preemptions"), rows)


def claims(found: Found) -> str:
    """Each claim of the paper, and what we get."""
    got = study.claims(found)
    rows: list[Sequence[Cell]] = []
    for name, (low, high) in study.PAPER.items():
        paper = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        ours = (
            f"{got[name]:.2f}" if name in got else f"{got[f'{name}_least']:.2f} to {got[f'{name}_most']:.2f}"
        )
        rows.append((name.replace("_", " "), paper, ours))
    note = (
        f"The mix at load {MIXED.point:g}, one seed, over stock, Orca, FastServe and Sarathi with 512 "
        "tokens a step. No "
        "row is a reproduction: the paper's prompts are longer, its engines older, its targets other, and "
        "its "
        "attainment is of iterations, ours of requests. Throughput below saturation is that of the arrivals."
    )
    return f"{report.table(('claim', 'paper', 'simulated here'), rows)}\n\n{note}"


def doubts(found: Found) -> str:
    """Misses over the corners of the grid."""
    corners = [f"x{mixed:g}, +{overhead:g} ms" for mixed, overhead in ((1.0, 0.0), *cases.CORNERS)]
    rows = [(name, *(f"{each:.2f}" for each in ratios)) for name, ratios in study.doubts(found)]
    note = "Targets missed, AccelGen / the best stock there; mixed attention and host time a step, one seed."
    return f"{report.table(('claim', *corners), rows)}\n\n{note}"
