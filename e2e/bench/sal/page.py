"""SAL against other balancers on simulated fleets: load, workload, size, slow engines, late reports, losses.

Figures are SAL / other, so below 1 SAL is better; `e2e/bench/runs/fleet.py` says what is simulated.
"""

from collections.abc import Iterable, Mapping, Sequence

from e2e.bench.report import intervals, markdown, plots
from e2e.bench.report.intervals import Estimate
from e2e.bench.runs.command_line import Options
from e2e.bench.runs.doubt import GRID, TOLD
from e2e.bench.sal.cases import (
    GRIDDED,
    LATENCIES,
    NAMES,
    STALE,
    Found,
    Setting,
    unchanged,
)

INTRODUCTION = (
    "SAL / other: below 1 SAL is better. 95 % intervals over three seeds, paired; `(one seed)` has none, and "
    "a ratio near 1 says little there. Arrivals: Azure's conversation trace as recorded, its code lengths at "
    "random times (`code-poisson`) or as recorded (`code`); both, `mixed`. A load is a fraction of what the "
    "engines sustain on the very requests that are served. The first 46 % of each run are left out (engines "
    "start empty), and the last 6 %. Random, RoundRobin, PowerOfTwo and LeastRequest are the product's own; "
    "the others are ports of what others run, with their defaults: `e2e/bench/rivals` names the sources."
)
LATE = "The gateway drops reports older than 3 s. llm-d counts what it sent, and needs none."
LOST = (
    "TTFT is that of the requests that were served: those lost with the engine have none, and no ratio above "
    "counts them. They are:"
)


def draw(sections: Mapping[str, Sequence[Setting]], found: Found, chosen: Options) -> None:
    """Mean TTFT of SAL over that of each other balancer."""
    groups = {
        f"{label(setting)}": {NAMES[other]: setting.ratio(found, other) for other in setting.others}
        for section in ("even", "slow", "prefixes")
        for setting in sections.get(section, ())
        if setting.case.load == 0.9
    }
    plots.ratios(
        chosen.folder / "sal.svg",
        "SAL's mean TTFT over that of other balancers, at 0.9 load",
        "Simulated; 16 engines of Llama-3-8B on H100; left of 1: SAL is faster; dot alone: one seed.",
        groups,
        x_label="mean TTFT, SAL / other",
    )


def label(setting: Setting) -> str:
    """Say what is special about a setting."""
    case = setting.case
    parts = [case.workload, f"load {case.load:g}"]
    if case.engines != 16:
        parts.append(f"{case.engines} engines")
    if case.slow:
        parts.append("one at half speed")
    if case.policy != "FCFS":
        parts.append(f"{case.policy} inside")
    if case.report_interval != STALE[0]:
        parts.append(f"reports every {case.report_interval:g} s")
    if case.lost_at:
        parts.append("one engine lost")
    return ", ".join(parts)


def write(
    sections: Mapping[str, Sequence[Setting]],
    changed: Mapping[str, Setting],
    points: Sequence[Setting],
    found: Found,
    chosen: Options,
) -> None:
    """Write the page with all tables."""
    titles = {
        "even": "Equal engines",
        "slow": "One engine at half speed",
        "prefixes": "Prompts that begin alike: Mooncake's conversations, and synthetic chats",
        "bursts": "Code completion as recorded: bursts that fill every engine",
        "sizes": "Fleets of 2, 4 and 64",
        "larry": "With LARRY inside the engines",
        "kv": "Where KV cache binds: ShareGPT lengths, Llama-2-13B on A100, 4 engines",
        "stale": "Reports that come late",
        "lost": "An engine lost on the way",
    }
    parts = [
        f"{INTRODUCTION} {gridded(points, found)}",
        markdown.picture(chosen.folder / "sal.svg", "Mean TTFT of SAL over that of other balancers."),
        worst(sections, found),
    ]
    for name, rows in sections.items():
        parts += [
            f"## {titles[name]}",
            "Mean TTFT:",
            table(rows, found, "ttft_mean"),
            "p95 of TTFT:",
            table(rows, found, "ttft_p95"),
            "Mean E2E:",
            table(rows, found, "e2e_mean"),
        ]
        if name == "stale":
            parts.append(LATE)
        if name == "lost":
            parts.append(losses(rows, found))
    if changed:
        parts += ["## SAL without its parts", variant_table(changed, found)]
    if points:
        parts.append("## Over the cost model's uncertainty")
        for workload in GRIDDED:
            mine = [point for point in points if point.case.workload == workload]
            for figure in LATENCIES:
                parts += [f"{label(mine[0])}, {named(figure)}:", grid_table(mine, found, figure)]
    markdown.page("sal", "SAL on simulated fleets", *parts, folder=chosen.folder)


def table(rows: Iterable[Setting], found: Found, figure: str) -> str:
    """Tabulate SAL's own value in milliseconds, and its ratio to each other balancer."""
    settings_ = list(rows)
    others = list(dict.fromkeys(other for row in settings_ for other in row.others))
    body: list[list[markdown.Cell]] = [
        [
            label(row),
            1000 * row.mean(found, "sal", figure),
            *(row.ratio(found, other, figure) if other in row.others else None for other in others),
        ]
        for row in settings_
    ]
    return markdown.table(["", "SAL, ms", *(NAMES[other] for other in others)], body)


def losses(rows: Iterable[Setting], found: Found) -> str:
    """Tabulate the requests lost with the engine."""
    shown = list(rows)
    lost = markdown.table(
        [
            "requests lost, of those in the middle of the run",
            *(NAMES[balancer] for balancer in ("sal", *shown[0].others)),
        ],
        [[label(row), *(row.mean(found, b, "lost") for b in ("sal", *row.others))] for row in shown],
    )
    return f"{LOST}\n\n{lost}"


def worst(sections: Mapping[str, Sequence[Setting]], found: Found) -> str:
    """Say where SAL does not win: behind, or not to be told from the other."""
    doubtful = [
        f"- {label(row)}: {NAMES[other]}, {named(figure)} {estimate}: {said}"
        for rows in sections.values()
        for row in rows
        for other in row.others
        for figure in LATENCIES
        if (said := doubt(estimate := row.ratio(found, other, figure)))
    ]
    if not doubtful:
        return "SAL has the lowest mean and p95 TTFT in every setting below."
    return "SAL is not shown to win here:\n\n" + "\n".join(doubtful)


def doubt(estimate: Estimate) -> str:
    """Say why a ratio shows no win: `SAL is behind`, `not distinguishable`, or nothing if it does."""
    if estimate.seeds == 1:
        return "not distinguishable" if estimate.value >= 1 else ""
    if estimate.high < 1:
        return ""
    return "SAL is behind" if estimate.low > 1 else "not distinguishable"


def named(figure: str) -> str:
    """`mean TTFT` or `p95 of TTFT`."""
    return "mean TTFT" if figure == "ttft_mean" else "p95 of TTFT"


def gridded(points: Sequence[Setting], found: Found) -> str:
    """Say which findings were tried on the grid of doubts, and how many of these bear them out."""
    if not points:
        return ""
    said = []
    for workload, others in GRIDDED.items():
        mine = [point for point in points if point.case.workload == workload]
        for other in others:
            for figure in LATENCIES:
                wins = sum(point.ratio(found, other, figure).value < 1 for point in mine)
                said.append(f"{workload} against {NAMES[other]}, {named(figure)}: {wins} of {len(mine)}")
    return (
        f"Tried on the {len(GRID)} points of the cost model's doubt were only SAL's wins at 0.9 over its "
        "nearest rivals, on 16 equal engines, with shorter runs (but at 1, 0 ms) and one seed. It is "
        "ahead at so many points: "
        f"{'; '.join(said)}. All else on this page holds for the cost model as it is."
    )


def variant_table(changed: Mapping[str, Setting], found: Found) -> str:
    """Tabulate each change against SAL as it is, on the same requests."""
    body: list[list[markdown.Cell]] = []
    for name, setting in changed.items():
        plain = unchanged(setting)
        cells: list[markdown.Cell] = [f"{name} ({label(setting)})"]
        for figure in LATENCIES:
            ours, theirs = (
                [float(found[each.of("sal", seed)][figure]) for seed in setting.seeds]
                for each in (setting, plain)
            )
            cells += [1000 * plain.mean(found, "sal", figure), intervals.ratio(ours, theirs)]
        body.append(cells)
    return markdown.table(
        ["", "SAL: mean TTFT, ms", "changed / SAL", "SAL: p95 of TTFT, ms", "changed / SAL"], body
    )


def grid_table(points: Sequence[Setting], found: Found, figure: str) -> str:
    """Tabulate the points of the grid."""
    return markdown.table(
        [TOLD, *(NAMES[other] for other in points[0].others)],
        [
            [str(doubt), *(point.ratio(found, other, figure) for other in point.others)]
            for doubt, point in zip(GRID, points, strict=True)
        ],
    )
