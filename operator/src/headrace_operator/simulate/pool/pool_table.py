"""What sharing would do, for people: a table for each plan, what it saves, and how far to believe it."""

from __future__ import annotations

from collections import Counter

from rich import box
from rich.console import Console
from rich.table import Table

from headrace_operator.simulate.figures import Figures, Spread
from headrace_operator.simulate.pool import pool_report
from headrace_operator.simulate.pool.pool_report import PoolReport
from headrace_operator.simulate.pool.pool_study import SimulatedPlan
from headrace_operator.simulate.table import short


def print_report(report: PoolReport, console: Console) -> None:
    """Print the report as tables and text."""
    nodes = Counter(report.nodes.gpus)
    where = " and ".join(f"{count} x {gpus}" for gpus, count in nodes.items())
    console.print(
        f"Simulated: {len(report.services)} services on {where} {report.gpu.upper()}",
        style="bold",
        highlight=False,
    )
    console.print()
    for _, words, plan in report.plans():
        console.print(_table(report, words, plan))
    for line in pool_report.conclusion(report):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print()
    for line in pool_report.about(report):
        console.print(line, style="dim", highlight=False, markup=False)


def _table(report: PoolReport, words: str, plan: SimulatedPlan) -> Table:
    table = Table(
        title=f"{words}: {plan.gpus} GPUs, simulated",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("service\n", no_wrap=True)
    table.add_column("engines\n")
    for heading in (
        "met\n",
        "TTFT (s)\nmean   p95",
        "TPOT (ms)\nmean   p95",
        "E2E (s)\nmean   p95",
        "longest\nwait",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, (service, figures) in enumerate(zip(report.services, plan.figures, strict=True)):
        table.add_row(service.name, _engines(report, plan, number), *_cells(figures))
    return table


def _engines(report: PoolReport, plan: SimulatedPlan, number: int) -> str:
    """Write a service's engines as `2 x 1 GPU, 2 GPUs with code`."""
    kinds: Counter[str] = Counter()
    for group in plan.groups:
        members = [engine.service for engine in group.engines]
        others = [report.services[each].name for each in members if each != number]
        kind = f"{group.gpus} {'GPU' if group.gpus == 1 else 'GPUs'}"
        kinds[f"{kind} with {', '.join(others)}" if others else kind] += members.count(number)
    return ", ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in kinds.items() if count)


def _cells(figures: Figures | None) -> list[str]:
    if figures is None:
        return ["-"] * 5
    spreads = (_spread(figures.ttft, 1), _spread(figures.tpot, 1000), _spread(figures.e2e, 1))
    return [f"{figures.met['all']:.1%}", *spreads, f"{short(figures.longest_wait)} s"]


def _spread(spread: Spread | None, factor: float) -> str:
    return "-" if spread is None else f"{short(spread.mean * factor)} {short(spread.p95 * factor):>5}"
