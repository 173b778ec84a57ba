"""`headrace predict CASES.csv OUT.csv`: read the cases, simulate each, write all predictions at once."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import os
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.progress import track

from headrace_operator.predict.cases import Case, Unpredictable, read_cases
from headrace_operator.simulate.needed_vllm import require_vllm
from headrace_operator.simulate.processes import ENVIRONMENT, MOST
from headrace_operator.simulate.usage_error import UsageError

FIGURES = (
    *("ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms", "tpot_mean_ms", "e2e_mean_ms", "e2e_p99_ms"),
    "completed_rps",
)
COLUMNS = ("id", *FIGURES, "why", "assumed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    parser.add_argument("cases", type=Path, metavar="CASES.csv", help="a model, GPUs and a load in each row")
    parser.add_argument("out", type=Path, metavar="OUT.csv", help="where the predictions go")


def run(options: argparse.Namespace) -> None:
    """Predict every case; raises UsageError before anything is written."""
    cases = read_cases(options.cases)
    if not options.out.absolute().parent.is_dir():
        raise UsageError(f"{options.out}: there is no folder {options.out.absolute().parent}")
    require_vllm()
    console = Console(stderr=True)
    rows = predict_rows(cases, console)
    beside = options.out.with_name(f".{options.out.name}.new")
    beside.write_text(as_csv(rows), encoding="utf-8")
    beside.replace(options.out)
    missing = sum(1 for row in rows if row["why"])
    console.print(f"{options.out}: {len(rows) - missing} predicted, {missing} not (column why); simulated")


def predict_rows(cases: Sequence[Case | Unpredictable], console: Console) -> list[dict[str, str]]:
    """Predict all cases, some side by side, with a bar on the console; a row of the output for each."""
    os.environ |= ENVIRONMENT  # for the processes that are started
    with get_context("spawn").Pool(min(len(cases), os.cpu_count() or 1, MOST)) as pool:
        predicted = pool.imap(predict_row, cases, chunksize=1)
        return list(track(predicted, "predicting", len(cases), console=console))


def predict_row(case: Case | Unpredictable) -> dict[str, str]:
    """Predict one case; a row of the output."""
    if isinstance(case, Unpredictable):
        return {"id": case.id, "why": case.why}
    import headrace_operator.simulate.quiet  # noqa: F401, PLC0415  before vLLM
    from headrace_operator.predict.prediction import predict  # noqa: PLC0415  vLLM takes seconds to import

    try:
        figures = dataclasses.asdict(predict(case))
    except ValueError as error:
        return {"id": case.id, "why": str(error)}
    shown = {name: f"{value:.3f}" for name, value in figures.items()}
    return {"id": case.id, **shown, "why": "", "assumed": "; ".join(case.assumed)}


def as_csv(rows: Sequence[dict[str, str]]) -> str:
    """Write the rows below the names of their columns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
