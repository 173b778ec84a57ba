"""Pictures of results in one style, as SVG and PNG: the title says what was found, lines carry their names.

The same figures give the same SVG: no dates, fixed ids. Colours are Okabe and Ito's, which differ for the
colour-blind too; a name keeps its colour over all pictures.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from e2e.bench.report.intervals import Estimate

SUFFIXES = (".svg", ".png")
INK, FAINT, GRID = "#222222", "#6b6b6b", "#e4e4e4"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#5E3C99")
FIXED = {
    "LARRY": "#0072B2",
    "SAL": "#0072B2",
    "stock": "#9a9a9a",
    "tuned stock": "#555555",
    "LeastRequest": "#D55E00",
    "PowerOfTwo": "#009E73",
    "RoundRobin": "#CC79A7",
    "Random": "#9a9a9a",
    "SRPT": "#D55E00",
    "shortest prompt first": "#009E73",
}
STYLE = {
    "svg.hashsalt": "headrace",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": "#bbbbbb",
    "axes.labelcolor": FAINT,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
}
RATIO_TICKS = (*(0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8), *(1, 1.25, 1.5, 2, 3, 5, 10, 20))
LABEL_HEIGHT = 0.062  # of a panel; labels keep this distance


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one line, and the interval around them where there is one."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def curves(
    path: Path,
    title: str,
    caption: str,
    panels: Mapping[str, Mapping[str, Curve]],
    *,
    x_label: str,
    y_label: str,
    level: tuple[float, str] | None = None,
    log: bool = False,
    percent: bool = False,
) -> Path:
    """Draw lines over load, one panel for each name, with a common y axis.

    `level`: a horizontal line and what it means. `caption` stands under the title; say there that it is
    simulated, of what, and over how many seeds. Returns the SVG's path; a PNG lies beside it.
    """
    with mpl.rc_context(STYLE):
        names = [name for lines in panels.values() for name in lines]
        figure, axes = _canvas(title, caption, len(panels), width=3.7, names=names)
        colours = _colours(names)
        for place, (axis, (heading, lines)) in enumerate(zip(axes, panels.items(), strict=True)):
            axis.set_title(heading, loc="left", fontsize=9.5, fontweight="bold")
            axis.set_xlabel(x_label)
            if place == 0:
                axis.set_ylabel(y_label)
            for name, curve in lines.items():
                _line(axis, curve, colours[name], strong=name not in {"stock", "tuned stock"})
            if level is not None:
                axis.axhline(level[0], color=FAINT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
            _scale(axis, log=log, percent=percent)
        for axis, lines in zip(axes, panels.values(), strict=True):
            if level is not None and axis is axes[0]:
                _note(axis, level[1], level[0])
            _labels(axis, lines, colours)
        return _save(figure, path)


def ratios(
    path: Path,
    title: str,
    caption: str,
    groups: Mapping[str, Mapping[str, Estimate]],
    *,
    x_label: str,
    better: str = "lower",
) -> Path:
    """Draw ratios as dots with intervals around 1: a group for each setting, a row for each name."""
    rows = sum(len(each) + 1 for each in groups.values())
    with mpl.rc_context(STYLE):
        figure, (axis,) = _canvas(title, caption, 1, width=7.6, height=0.3 * rows + 0.3)
        colours = _colours([name for each in groups.values() for name in each])
        row = 0.0
        ticks: dict[float, str] = {}
        for heading, each in groups.items():
            axis.text(
                -0.01,
                row,
                heading,
                fontweight="bold",
                ha="right",
                va="center",
                transform=axis.get_yaxis_transform(),
            )
            for name, estimate in each.items():
                row += 1
                ticks[row] = name
                axis.plot(
                    [estimate.low, estimate.high], [row, row], color=colours[name], linewidth=2, alpha=0.55
                )
                axis.plot([estimate.value], [row], "o", color=colours[name], markersize=6.5)
                axis.annotate(
                    f"{estimate.value:.2f}",
                    (max(estimate.high, estimate.value), row),
                    (6, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=8.5,
                    color=colours[name],
                    fontweight="bold",
                )
            row += 1.4
        axis.axvline(1, color=INK, linewidth=1)
        axis.set_xscale("log")
        ends = [end for each in groups.values() for value in each.values() for end in (value.low, value.high)]
        axis.set_xlim(min(0.9, *ends) * 0.9, max(1.1, *ends) * 1.2)
        axis.set_ylim(row - 0.9, -0.7)
        axis.set_yticks(list(ticks), list(ticks.values()))
        axis.grid(visible=False, axis="y")
        axis.set_xticks([tick for tick in RATIO_TICKS if axis.get_xlim()[0] <= tick <= axis.get_xlim()[1]])
        axis.set_xticks([], minor=True)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        arrow = "← better" if better == "lower" else "better →"
        axis.set_xlabel(f"{x_label}   ({arrow})")
        return _save(figure, path)


def trade_off(
    path: Path,
    title: str,
    caption: str,
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float, str]]]],
    *,
    x_label: str,
    y_label: str,
    chosen: str | None = None,
    box: tuple[float, float] | None = None,
    percent: bool = False,
    log: bool = False,
) -> Path:
    """Draw points (x, y, name) joined in order: what is gained against its cost, for each kind and panel.

    `chosen` names the point that became the default; `box` (x at most, y at least) is the aim, shaded. `log`
    is for the x axis.
    """
    with mpl.rc_context(STYLE):
        figure, axes = _canvas(title, caption, len(panels), width=4.6)
        colours = _colours([name for each in panels.values() for name in each])
        for place, (axis, (heading, kinds)) in enumerate(zip(axes, panels.items(), strict=True)):
            axis.set_title(heading, loc="left", fontsize=9.5, fontweight="bold")
            axis.set_xlabel(x_label)
            if place == 0:
                axis.set_ylabel(y_label)
            if log:
                axis.set_xscale("log")
                _plain_log(axis.xaxis)
            for name, points in kinds.items():
                colour = colours[name]
                axis.plot(
                    [x for x, _, _ in points], [y for _, y, _ in points], "-o", color=colour, markersize=4.5
                )
                for x, y, label in points:
                    picked = label == chosen
                    if picked:
                        axis.plot(
                            [x],
                            [y],
                            "o",
                            markersize=12,
                            markerfacecolor="none",
                            color=INK,
                            markeredgewidth=1.6,
                        )
                    axis.annotate(
                        f"{label} (default)" if picked else label,
                        (x, y),
                        (7, -9),
                        textcoords="offset points",
                        fontsize=8,
                        color=INK if picked else colour,
                        fontweight="bold" if picked else "normal",
                    )
                if len(kinds) > 1 and points:
                    axis.annotate(
                        name,
                        points[-1][:2],
                        (0, 9),
                        textcoords="offset points",
                        color=colour,
                        fontweight="bold",
                        fontsize=8.5,
                        ha="center",
                    )
            axis.margins(0.14)
            _scale(axis, log=False, percent=percent)
            if box is not None:
                axis.axvspan(
                    axis.get_xlim()[0], box[0], *_share(axis, box[1]), color="#009E73", alpha=0.09, lw=0
                )
                axis.set_xlim(axis.get_xlim())
        return _save(figure, path)


def _share(axis: Any, least: float) -> tuple[float, float]:
    low, high = axis.get_ylim()
    axis.set_ylim(low, high)
    return max(0.0, (least - low) / (high - low)), 1.0


def _canvas(
    title: str, caption: str, panels: int, *, width: float, height: float = 3.1, names: Sequence[str] = ()
) -> tuple[Figure, Any]:
    """Make a figure with room for title and caption above, and for `names` beside the panels."""
    aside = 0.3 + 0.083 * max(map(len, names), default=0)  # inches beside each panel
    inches = max((width + aside) * panels, 6.4)
    heading = textwrap.wrap(title, int(inches * 10.2))
    below = textwrap.wrap(caption, int(inches * 14))
    top = 0.16 + 0.24 * len(heading) + 0.19 * len(below) + 0.3
    figure = Figure(figsize=(inches, height + top + 0.5))
    tall = height + top + 0.5
    figure.text(0.012, 1 - 0.12 / tall, "\n".join(heading), fontsize=12.5, fontweight="bold", va="top")
    figure.text(
        0.012, 1 - (0.16 + 0.24 * len(heading)) / tall, "\n".join(below), fontsize=9, color=FAINT, va="top"
    )
    axes = figure.subplots(1, panels, squeeze=False, sharey=panels > 1)[0]
    left = 0.55
    panel = (inches - left - aside * panels) / panels
    figure.subplots_adjust(
        top=1 - top / tall,
        bottom=0.5 / tall,
        left=left / inches,
        right=1 - aside / inches,
        wspace=aside / panel,
    )
    return figure, axes


def _colours(names: Sequence[str]) -> dict[str, str]:
    """Choose a colour for each name: its own, or the next that none of the others has."""
    found = {name: FIXED[name] for name in names if name in FIXED}
    free = [colour for colour in COLOURS if colour not in found.values()]
    others = [name for name in dict.fromkeys(names) if name not in found]
    return found | {name: (free or list(COLOURS))[i % len(free or COLOURS)] for i, name in enumerate(others)}


def _line(axis: Any, curve: Curve, colour: str, *, strong: bool) -> None:
    axis.plot(
        curve.x,
        curve.y,
        "-o",
        color=colour,
        linewidth=2.2 if strong else 1.6,
        markersize=3.8,
        zorder=3,
        markeredgecolor="white",
        markeredgewidth=0.6,
    )
    if curve.low and curve.high:
        axis.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.13, linewidth=0, zorder=2)


def _scale(axis: Any, *, log: bool, percent: bool) -> None:
    if log:
        axis.set_yscale("log")
        _plain_log(axis.yaxis)
    if percent:
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:.0f} %"))


def _plain_log(axis: Any) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(FuncFormatter(_one_two_five))


def _one_two_five(value: float, _: int) -> str:
    return f"{value:g}" if f"{value:e}"[0] in "25" else ""


def _labels(axis: Any, lines: Mapping[str, Curve], colours: Mapping[str, str]) -> None:
    """Names at the lines' ends, moved apart where lines end together."""
    left, right = axis.get_xlim()
    ends = []
    for name, curve in lines.items():
        if curve.x:
            point = axis.transData.transform((curve.x[-1], curve.y[-1]))
            ends.append((axis.transAxes.inverted().transform(point)[1], name))
    ends.sort()
    heights = _apart([height for height, _ in ends])
    for (_, name), height in zip(ends, heights, strict=True):
        axis.text(
            1.02,
            height,
            name,
            transform=axis.transAxes,
            color=colours[name],
            fontweight="bold",
            fontsize=8.5,
            va="center",
            clip_on=False,
        )
    axis.set_xlim(left, right)


def _apart(heights: Sequence[float]) -> list[float]:
    """Move sorted heights apart, each as little as it takes to be LABEL_HEIGHT from the next."""
    moved = list(heights)
    for _ in range(100):
        for index in range(1, len(moved)):
            lacking = LABEL_HEIGHT - (moved[index] - moved[index - 1])
            if lacking > 0:
                moved[index - 1] -= lacking / 2
                moved[index] += lacking / 2
    return moved


def _note(axis: Any, text: str, height: float) -> None:
    axis.annotate(
        text,
        (1, height),
        (-4, 3),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color=FAINT,
    )


def _save(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    for suffix in SUFFIXES:
        figure.savefig(
            path.with_suffix(suffix),
            dpi=130,
            facecolor="white",
            bbox_inches="tight",
            pad_inches=0.12,
            metadata={"Date": None} if suffix == ".svg" else {"Software": None},
        )
    return path.with_suffix(".svg")
