"""What the figures of the study of LARRY do not show: missed aims, doubts, and where it does not help."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from e2e.bench.larry import cases, figures
from e2e.bench.larry.figures import Found
from e2e.bench.report import intervals, markdown
from e2e.bench.report.intervals import Estimate
from e2e.bench.report.markdown import Cell
from e2e.bench.runs.engine import GRID
from e2e.bench.runs.setting import Setting

HALF = 0.5  # mean TTFT of stock's, code as recorded at loads 0.1 to 0.7
GOODPUTS = ((cases.CODE, "stock", 2.5), (cases.CODE, "tuned", 2.0), (cases.POISSON, "tuned", 1.4))
KEPT, WAIT = 0.9, 1.5  # gain that ageing keeps, at a longest wait of that many times stock's
WORSE = 1.02  # than stock with the same settings, at loads up to 0.7
SMALL_GAIN = 0.95
BESIDE = ("paper", "SRPT")  # beside the aims: LARRY without ageing, and foresight
Row = tuple[Cell, ...]


def aims(found: Found) -> str:
    """Tabulate what was aimed for before the study was made, beside what came out."""
    rows = [*_ttfts(found), *_carried(found), *_aged(found), *_low_loads(found)]
    missed = [str(name) for name, _, _, reached, *_ in rows if reached == "missed"]
    header = ("aim", "wanted", "found", "", "without ageing", "SRPT")
    return (
        f"{markdown.table(header, rows)}\n\n"
        "*Without ageing*: LARRY as its paper has it. *SRPT*: the shortest "
        "remaining time first, preemptively, with output lengths that no policy can know; a strong "
        f"order to compare with, not a bound.\n\nMissed: {'; '.join(missed) or 'none'}."
    )


def _ttfts(found: Found) -> Iterator[Row]:
    for load in (each for each in cases.CODE.all_loads() if 0.1 <= each <= 0.7):
        for kind, name in (("LARRY", "8,192 tokens a step"), ("LARRY, 1,024", "step budget 1,024")):
            estimate = figures.ratio(found, cases.CODE, load, kind=kind)
            what = f"mean TTFT / default stock, {_short(cases.CODE)}, load {load:g}, {name}"
            beside = [
                figures.ratio(found, cases.CODE, load, kind=kind.replace("LARRY", each)) for each in BESIDE
            ]
            reached = _reached(estimate.value <= HALF)
            yield what, f"at most {HALF}", str(estimate), reached, *map(str, beside)


def _carried(found: Found) -> Iterator[Row]:
    for setting, against, least in GOODPUTS:
        ours, *beside = (
            figures.goodput_ratio(found, setting, "e2e", f"{kind}, 1,024", against)
            for kind in ("LARRY", *BESIDE)
        )
        enough, bound = ours[0].value >= least, ours[1]
        told = bound == "" or (bound == ">" and enough) or (bound == "<" and not enough)
        what = f"goodput (E2E 5x) with 1,024 / {'default stock' if against == 'stock' else 'tuned stock'}"
        reached = _reached(enough) if told else "not told"
        values = [_bounded(*each) for each in (ours, *beside)]
        yield f"{what}, {_short(setting)}", f"at least {least}", values[0], reached, *values[1:]


def _aged(found: Found) -> Iterator[Row]:
    for setting in cases.SETTINGS:
        kept = figures.gain_kept(found, setting, setting.point)
        wait = figures.ratio(found, setting, setting.point, "wait_max")
        reached = _reached(kept >= KEPT and wait.value <= WAIT)
        value = f"{kept:.0%} at {wait.value:.2f}x"
        what = f"gain kept at longest wait / stock's, {_short(setting)}, load {setting.point:g}"
        unaged = figures.ratio(found, setting, setting.point, "wait_max", kind="paper")
        yield what, f"{KEPT:.0%} at {WAIT}x or less", value, reached, f"100% at {unaged.value:.2f}x", None


def _low_loads(found: Found) -> Iterator[Row]:
    for name, figure in (("mean TTFT", "ttft_mean"), ("mean E2E", "e2e_mean")):
        worst, where = figures.worst_at_low_load(found, figure)
        what = f"worst {name} / stock with the same budget and watermark, loads up to 0.7 ({where})"
        yield what, f"at most {WORSE}", _fine(worst), _reached(worst.value <= WORSE), None, None


def _fine(found: Estimate) -> str:
    """Write a percentage with a third digit, where 2 % is asked for."""
    if found.seeds == 1:
        return f"{found.value:.3f} (one seed)"
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"


def _reached(yes: bool) -> str:
    return "reached" if yes else "missed"


def doubts(found: Found) -> str:
    """Make the table of each finding at the nine points of the grid."""
    rows: list[Sequence[Cell]] = []
    holds = figures.holds_everywhere(found)
    for name, ratios in figures.doubts(found).items():
        rows.append((name, *ratios, "yes" if holds[name] else "no"))
    header = ["finding", *(f"{mixed:g} / {overhead:g} ms" for mixed, overhead in GRID), "wins everywhere"]
    runs = [replace(each, sync=True) for each in cases.points(cases.CODE, (0.7,))]
    once = intervals.ratio(
        figures.values(found, [cases.larry(case) for case in runs], "ttft_mean"),
        figures.values(found, runs, "ttft_mean"),
    )
    return (
        f"{markdown.table(header, rows)}\n\n"
        "LARRY / stock, one seed, with attention of mixed batches dearer by "
        "a factor, and a time added to each step; load 1 is stock's at each point. `missed_e2e`: requests "
        "beyond 5x, LARRY with 1,024 tokens a step against the better of stock's budgets 8,192 and 1,024. "
        "No other figure of this page was put to this test, no goodput among them. With synchronous "
        f"scheduling LARRY's mean TTFT on code at load 0.7 is {once} of stock's."
    )


def limits(found: Found) -> str:
    """Say in how far the figures speak against LARRY."""
    kept = [
        f"{_short(setting)} {figures.gain_kept(found, setting, setting.point):.0%} at load {setting.point:g}"
        for setting in cases.SETTINGS
    ]
    long = [
        f"{_short(setting)} {figures.ratio(found, setting, setting.point, 'wait_max')} at {setting.point:g}"
        for setting in cases.SETTINGS
    ]
    carried = [
        f"{_short(setting)} {_bounded(*figures.goodput_ratio(found, setting, 'e2e', 'LARRY'))}"
        for setting in cases.SWEPT
    ]
    worse, alike, hardly, single = (
        _where(found, wanted)
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
        f"With the engine's own budget, 8,192, goodput (E2E 5x) / default stock's: {'; '.join(carried)}.",
    )
    return "\n".join(f"- {point}" for point in points)


def _hardly(found: Estimate) -> bool:
    return intervals.compare_with_one(found) == "better" and found.value > SMALL_GAIN


def _bounded(found: Estimate, bound: str) -> str:
    return "not told by this sweep" if bound == "~" else f"{bound} {found}".strip()


def _where(found: Found, wanted: Callable[[Estimate], bool]) -> str:
    """Name the settings in which mean TTFT / default stock's is as wanted."""
    places = []
    for setting in cases.SETTINGS:
        ratios = {load: figures.ratio(found, setting, load) for load in setting.all_loads() if load >= 0.1}
        loads = [f"{load:g} ({each.value:.2f})" for load, each in ratios.items() if wanted(each)]
        if loads:
            places.append(f"{_short(setting)}, at load {', '.join(loads)}")
    return "; ".join(places) or "nowhere"


def _short(setting: Setting) -> str:
    """Name workload and model, and the GPU where another one has the same."""
    name = setting.name.partition(" on ")[0]
    alike = [each for each in cases.SETTINGS if each.name.startswith(f"{name} on ")]
    return name if setting == alike[0] else setting.name
