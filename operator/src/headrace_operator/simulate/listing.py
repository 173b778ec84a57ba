"""`headrace simulate --list-cost-models`: what can be simulated, and how far each was off."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from headrace_engine.cost import catalog
from headrace_engine.cost.known_error import FIGURES, Comparison, load_comparisons, median_error, worst_error
from headrace_engine.cost.model import Profile
from headrace_operator.simulate.known_error import find_known_error
from headrace_operator.simulate.table import open_console


class ListCostModels(argparse.Action):
    """Print the list and end, like --help; no other option is needed."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print and exit with 0."""
        print_cost_models(open_console())
        parser.exit()


def print_cost_models(console: Console) -> None:
    """Print every cost model with its error against measured runs, then the runs that have no cost model."""
    everything = load_comparisons()
    profiles = sorted(catalog.list_profiles(), key=_order)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("model", "GPUs", "step times of"):
        table.add_column(f"{heading}\n", no_wrap=True)
    for heading in ("runs\n", *(f"{figure.upper()}, %\n(worst)" for figure in FIGURES)):
        table.add_column(heading, justify="right", no_wrap=True)
    for profile in profiles:
        found = find_known_error(profile, everything).compared
        table.add_row(profile.model, _gpus(profile), profile.engine, *_errors(found))
    known = {(profile.model, _gpus(profile)) for profile in profiles}
    for other in everything:
        if (other.model, _gpus(other)) not in known:
            table.add_row(other.model, _gpus(other), "its own tables", *_errors([other]), style="dim")
    console.print(table)
    console.print(
        "TTFT, TPOT, E2E: how far the means of measured vLLM runs were missed, median and worst; -: never"
        " compared, so that the widest of these errors is assumed.",
        style="dim",
        highlight=False,
    )


def _errors(compared: Sequence[Comparison]) -> list[str]:
    """Return the number of runs and, of each figure, the median size of the error and the worst."""
    if not compared:
        return ["-"] * (1 + len(FIGURES))
    cells = [f"{sum(len(each.runs) for each in compared)}"]
    for figure in FIGURES:
        middle, worst = median_error(compared, figure), worst_error(compared, figure)
        cells.append("-" if middle is None or worst is None else f"{middle:.1f} {f'({worst:+.1f})':>7}")
    return cells


def _gpus(of: Profile | Comparison) -> str:
    return f"{of.tensor_parallel} x {of.gpu}"


def _order(profile: Profile) -> tuple[str, str, int]:
    return profile.model, profile.gpu, profile.tensor_parallel
