"""SAL against other balancers on simulated fleets: `python -m e2e.bench.sal`."""

from collections.abc import Mapping, Sequence

from e2e.bench.report import intervals, results
from e2e.bench.rivals import RIVALS
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.fleet import measure
from e2e.bench.sal import page
from e2e.bench.sal.cases import LATENCIES, Found, Setting, all_cases, grid, settings, variants

COMMAND = "python -m e2e.bench.sal"
DIGITS = 4  # of the figures that are written


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(chosen: Options) -> None:
    """Simulate all of it, and write figures, tables and pictures."""
    sections, changed, points = (
        settings(quick=chosen.quick),
        variants(quick=chosen.quick),
        grid(quick=chosen.quick),
    )
    found = measure(all_cases(sections, changed, points), "SAL", chosen.workers)
    figures = headline(sections, found) | best_rivals(sections, found) | worst_points(points, found)
    rounded = {name: float(f"{value:.{DIGITS}g}") for name, value in figures.items()}
    results.write("sal", COMMAND, rounded, simulated=True, folder=chosen.folder)
    page.draw(sections, found, chosen)
    page.write(sections, changed, points, found, chosen)


def headline(sections: Mapping[str, Sequence[Setting]], found: Found) -> dict[str, float]:
    """Return the figures by name: conversation without a suffix, the others with theirs."""
    figures: dict[str, float] = {}
    for section, suffix in (("even", ""), ("slow", "_slow"), ("prefixes", "")):
        for setting in sections.get(section, ()):
            workload = suffix_of(setting)
            load = f"{round(setting.case.load * 10):02d}"
            for other in setting.others:
                for figure in ("ttft_mean", "ttft_p95", "e2e_mean"):
                    key = f"{figure}_ratio_{other}{workload}_{load}{suffix}"
                    figures |= intervals.keyed(key, setting.ratio(found, other, figure))
    return figures


def best_rivals(sections: Mapping[str, Sequence[Setting]], found: Found) -> dict[str, float]:
    """Return SAL's mean TTFT and E2E over the best rival's at 0.9, by workload, `_slow` and `_N_engines`."""
    figures: dict[str, float] = {}
    for section in ("even", "slow", "prefixes", "bursts", "sizes"):
        for setting in sections.get(section, ()):
            case = setting.case
            if case.load != 0.9 or not set(RIVALS) <= set(setting.others):
                continue
            place = case.workload.replace("-", "_") + ("_slow" if case.slow else "")
            place += f"_{case.engines}_engines" if section == "sizes" else ""
            for figure, name in (("ttft_mean", "best_rival"), ("e2e_mean", "best_rival_e2e")):
                best = setting.ratio(found, setting.best_rival(found, figure), figure)
                figures |= intervals.keyed(f"{name}_{place}", best)
    return figures


def suffix_of(setting: Setting) -> str:
    """Name the workload in a figure's name; conversation goes without."""
    name = setting.case.workload.partition("-")[0]
    return "" if name == "conversation" else f"_{name}"


def worst_points(points: Sequence[Setting], found: Found) -> dict[str, float]:
    """Return the highest ratio on the grid, by workload, rival and latency."""
    figures: dict[str, float] = {}
    for point in points:
        for other in point.others:
            for figure in LATENCIES:
                key = f"grid_worst_{figure}_ratio_{other}{suffix_of(point)}_09"
                figures[key] = max(figures.get(key, 0.0), point.ratio(found, other, figure).value)
    return figures
