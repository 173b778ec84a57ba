"""The result for people: two tables, what to do, and how far to believe it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, fields
from functools import partial

from rich import box
from rich.console import Console
from rich.table import Table

from headrace_operator.simulate import report as reports
from headrace_operator.simulate import targets
from headrace_operator.simulate.figures import Spread
from headrace_operator.simulate.intervals import Interval
from headrace_operator.simulate.report import Report

WIDTH = 111  # the tables need it; narrower terminals wrap lines

SHOWN = ("mean", "p95")  # of the times with intervals; JSON has all percentiles
_UNITS = {"ttft": ("s", 1.0), "tpot": ("ms", 1000.0), "e2e": ("s", 1.0)}
_FOUR = "   ".join(field.name for field in fields(Spread))


def open_console() -> Console:
    """Open a console on stdout that tables have room on."""
    return Console(width=max(Console().width, WIDTH))


def print_report(report: Report, console: Console) -> None:
    """Print the report as tables and text."""
    console.print(headline(report), style="bold", highlight=False, markup=False)
    console.print()
    console.print(met_table(report))
    console.print(latency_table(report))
    console.print(interval_table(report))
    for line in reports.recommendation(report):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print()
    for line in reports.about(report):
        console.print(line, style="dim", highlight=False, markup=False)


def headline(report: Report) -> str:
    """Say which service, replicas, hardware and balancer are simulated."""
    replicas = "1 replica" if report.replicas == 1 else f"{report.replicas} replicas"
    return (
        f"Simulated: {report.service.key}, {replicas} of {report.profile.model} on "
        f"{report.profile.tensor_parallel} x {report.profile.gpu}, {report.service.spec.routing.balancer}"
    )


def met_table(report: Report) -> Table:
    """Make the table of targets met, with the longest wait and the preemptions."""
    limits = targets.format_limits(report.slo)
    refused = any(figures.refused for figures in report.study.figures)
    table = _table(
        "Requests that meet their targets, simulated",
        *(f"{name.upper()}\n≤ {limit}" for name, limit in limits.items()),
        "all\n",
        "longest\nwait",
        "preemp-\ntions",
        *(["refused\n"] if refused else []),
    )
    for number, figures in enumerate(report.study.figures):
        _add_row(
            table,
            report,
            number,
            *(f"{figures.met[name]:.1%}" for name in limits),
            f"{figures.met['all']:.1%}",
            f"{short(figures.longest_wait)} s",
            f"{figures.preemptions}",
            *([f"{figures.refused}"] if refused else []),
        )
    return table


def latency_table(report: Report) -> Table:
    """Make the table of latencies, with means and percentiles."""
    table = _table(
        "Latencies, simulated", f"TTFT (s)\n{_FOUR}", f"TPOT, mean gap (ms)\n{_FOUR}", f"E2E (s)\n{_FOUR}"
    )
    for number, figures in enumerate(report.study.figures):
        cells = (_spread(figures.ttft, 1), _spread(figures.tpot, 1000), _spread(figures.e2e, 1))
        _add_row(table, report, number, *cells)
    return table


def interval_table(report: Report) -> Table:
    """Make the table of 95 % intervals: today's setting, the best other one, and the change."""
    study, rival = report.study, report.study.rival
    table = Table(
        title="With 95 % intervals, simulated", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    table.add_column("", no_wrap=True)
    table.add_column(f"now\n{study.candidates[study.current].name}", justify="right", no_wrap=True)
    if rival:
        mark = "best" if rival.recommended else "looks better"
        table.add_column(f"{mark}\n{study.candidates[rival.number].name}", justify="right", no_wrap=True)
        table.add_column("change\n", justify="right", no_wrap=True)
    for name in study.now:
        figure, _, which = name.partition("_")
        if figure != "met" and which not in SHOWN:
            continue
        row, number = (
            (f"targets met, {which if which == 'all' else which.upper()}", _percent)
            if figure == "met"
            else (f"{figure.upper()}, {which} ({_UNITS[figure][0]})", partial(_scaled, _UNITS[figure][1]))
        )
        cells = [_interval(study.now.get(name), number)]
        if rival:
            change = _points if figure == "met" else _times
            cells += [_interval(rival.intervals.get(name), number), _interval(rival.change.get(name), change)]
        table.add_row(row, *cells)
    return table


def _interval(found: Interval | None, number: Callable[[float], str]) -> str:
    return "-" if found is None else f"{number(found.value)} ({number(found.low)} to {number(found.high)})"


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f}"


def _times(ratio: float) -> str:
    return f"x {ratio:.2f}"


def _scaled(factor: float, seconds: float) -> str:
    return short(factor * seconds)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    table.add_column("policy,\ntokens per step", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _add_row(table: Table, report: Report, number: int, *cells: str) -> None:
    study = report.study
    mark = "now" if number == study.current else "best" if number == study.recommended else ""
    style = "bold green" if number == study.recommended else None
    table.add_row(mark, study.candidates[number].name, *cells, style=style)


def _spread(spread: Spread | None, factor: float) -> str:
    if spread is None:
        return "-"
    return " ".join(f"{short(value * factor):>5}" for value in astuple(spread))


def short(value: float) -> str:
    """Write a number in three figures and five characters."""
    digits = 3 if value < 0.9995 else 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}"
