"""What the figures of the study of LARRY do not show: missed aims, doubts, and where it does not help."""

from collections.abc import Callable, Iterator, Sequence

from e2e.bench.larry import cases, figures
from e2e.bench.larry.figures import Study
from e2e.bench.report import intervals, markdown
from e2e.bench.report.intervals import Estimate
from e2e.bench.report.markdown import Cell
from e2e.bench.runs import comparison
from e2e.bench.runs.doubt import GRID, TOLD
from e2e.bench.runs.setting import Setting

HALF = 0.5  # mean TTFT of stock's, code as recorded at loads 0.1 to 0.7
GOODPUTS = ((cases.CODE, "stock", 2.5), (cases.CODE, "tuned stock", 2.0), (cases.POISSON, "tuned stock", 1.4))
KEPT, WAIT = 0.9, 1.5  # gain that ageing keeps, at a longest wait of that many times stock's
WORSE = 1.02  # than stock, both default or both tuned, at loads up to 0.7
SMALL_GAIN = 0.95
Row = tuple[Cell, ...]


def aims(study: Study) -> str:
    """Tabulate what was aimed for before the study was made, beside what came out."""
    rows = [*_ttfts(study), *_carried(study), *_aged(study), *_low_loads(study)]
    missed = [str(name) for name, _, _, reached, *_ in rows if reached == "missed"]
    header = ("aim", "wanted", "found", "", "without ageing", "SRPT")
    return (
        f"{markdown.table(header, rows)}\n\n"
        "*Without ageing*: LARRY as its paper has it. *SRPT*: the shortest "
        "remaining time first, preemptively, with output lengths that no policy can know; a strong "
        f"order to compare with, not a bound.\n\nMissed: {'; '.join(missed) or 'none'}."
    )


def _ttfts(study: Study) -> Iterator[Row]:
    for load in cases.foreseen():
        ours, *beside = (study.ratio(cases.CODE, load, kind=kind) for kind in ("LARRY", "paper", "SRPT"))
        what = f"mean TTFT / default stock, {_short(cases.CODE)}, load {load:g}"
        yield what, f"at most {HALF}", str(ours), _reached(ours.value <= HALF), *map(str, beside)


def _carried(study: Study) -> Iterator[Row]:
    for setting, against, least in GOODPUTS:
        ours = study.goodput_ratio(setting, "tuned LARRY", against)
        enough, bound = ours[0].value >= least, ours[1]
        told = bound == "" or (bound == ">" and enough) or (bound == "<" and not enough)
        name = "default stock" if against == "stock" else against
        what = f"goodput (E2E 5x) of tuned LARRY / {name}, {_short(setting)}"
        reached = _reached(enough) if told else "not told"
        yield what, f"at least {least}", _bounded(*ours), reached, None, None


def _aged(study: Study) -> Iterator[Row]:
    for setting in cases.SETTINGS:
        kept = figures.gain_kept(study, setting, setting.point)
        wait, unaged = (
            study.ratio(setting, setting.point, "wait_max", kind=kind) for kind in ("LARRY", "paper")
        )
        reached = _reached(kept >= KEPT and wait.value <= WAIT)
        value = f"{kept:.0%} at {wait.value:.2f}x"
        what = f"gain kept at longest wait / stock's, {_short(setting)}, load {setting.point:g}"
        yield what, f"{KEPT:.0%} at {WAIT}x or less", value, reached, f"100% at {unaged.value:.2f}x", None


def _low_loads(study: Study) -> Iterator[Row]:
    for name, figure in (("mean TTFT", "ttft_mean"), ("mean E2E", "e2e_mean")):
        worst, where = figures.worst_at_low_load(study, figure)
        what = f"worst {name} / stock, both default or both tuned, loads up to 0.7 ({where})"
        yield what, f"at most {WORSE}", _fine(worst), _reached(worst.value <= WORSE), None, None


def _fine(found: Estimate) -> str:
    """Write a percentage with a third digit, where 2 % is asked for."""
    if found.seeds == 1:
        return f"{found.value:.3f} (one seed)"
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


def _reached(yes: bool) -> str:
    return "reached" if yes else "missed"


def doubts(study: Study) -> str:
    """Make the table of each finding at the points of the grid."""
    rows: list[Sequence[Cell]] = []
    holds = figures.holds_everywhere(study)
    for name, ratios in figures.doubts(study).items():
        rows.append((name, *ratios, "yes" if holds[name] else "no"))
    header = ["finding", *map(str, GRID), "wins everywhere"]
    return (
        f"{markdown.table(header, rows)}\n\n"
        "LARRY / stock, both with the settings that were tuned for the cost model as fitted, one seed: "
        f"{TOLD}. Load 1 is stock's at each point. `missed_e2e`: requests beyond 5x. No other figure of this "
        "page was put to this test, no goodput among them. With synchronous scheduling LARRY's mean TTFT on "
        "code at load 0.7 is "
        f"{figures.planning_ahead(study)} of stock's."
    )


def limits(study: Study) -> str:
    """Say in how far the figures speak against LARRY."""
    kept = [
        f"{_short(setting)} {figures.gain_kept(study, setting, setting.point):.0%} at load {setting.point:g}"
        for setting in cases.SETTINGS
    ]
    long = [
        f"{_short(setting)} {study.ratio(setting, setting.point, 'wait_max')} at {setting.point:g}"
        for setting in cases.SETTINGS
    ]
    carried = [
        f"{_short(setting)} {_bounded(*study.goodput_ratio(setting, 'LARRY', 'stock'))}"
        for setting in cases.SWEPT
    ]
    worse, alike, hardly, single = (
        _where(study, wanted)
        for wanted in (
            lambda each: intervals.compare_with_one(each) == "worse",
            lambda each: intervals.compare_with_one(each) == "not distinguishable",
            _hardly,
            lambda each: intervals.compare_with_one(each) == "one seed" and each.value > SMALL_GAIN,
        )
    )
    points = (
        f"Mean TTFT is higher than stock's: {worse}.",
        f"It is not distinguishable from stock's, the interval spans 1: {alike}.",
        f"It is lower by less than 5 %: {hardly}. Where no queue forms there is nothing to reorder.",
        f"From one seed, so without an interval, it is less than 5 % lower or higher: {single}.",
        f"Of the gain of the paper's form the default keeps: {'; '.join(kept)}.",
        f"The longest wait, of stock's: {'; '.join(long)}.",
        f"On engines with default settings, goodput (E2E 5x) / default stock's: {'; '.join(carried)}.",
    )
    told = "On engines with default settings, where nothing else is said:"
    return f"{told}\n\n" + "\n".join(f"- {point}" for point in points)


def _hardly(found: Estimate) -> bool:
    return intervals.compare_with_one(found) == "better" and found.value > SMALL_GAIN


def _bounded(found: Estimate, bound: str) -> str:
    return "not told by this sweep" if bound == "~" else comparison.shown((found, bound))


def _where(study: Study, wanted: Callable[[Estimate], bool]) -> str:
    """Name the settings in which mean TTFT / default stock's is as wanted."""
    places = []
    for setting in cases.SETTINGS:
        ratios = {load: study.ratio(setting, load) for load in setting.all_loads() if load >= 0.1}
        loads = [f"{load:g} ({each.value:.2f})" for load, each in ratios.items() if wanted(each)]
        if loads:
            places.append(f"{_short(setting)}, at load {', '.join(loads)}")
    return "; ".join(places) or "nowhere"


def _short(setting: Setting) -> str:
    """Name workload and model, and the GPU where another one has the same."""
    name = setting.name.partition(" on ")[0]
    alike = [each for each in cases.SETTINGS if each.name.startswith(f"{name} on ")]
    return name if setting == alike[0] else setting.name
