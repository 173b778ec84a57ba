"""AccelGen against tuned stock vLLM on one simulated engine: `python -m e2e.bench.accelgen`."""

from dataclasses import replace
from functools import partial

from e2e.bench.accelgen import cases, figures, page
from e2e.bench.accelgen.cases import MIXED, accelgen
from e2e.bench.accelgen.figures import Goodputs
from e2e.bench.report import results
from e2e.bench.runs import search
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.comparison import Found
from e2e.bench.runs.engine import measure
from e2e.bench.runs.search import Measure

COMMAND = "python -m e2e.bench.accelgen"


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(chosen: Options) -> None:
    """Simulate what is missing, then write figures, page and picture."""
    if chosen.quick:
        tiny = replace(MIXED, loads=(0.5, 1.0), seeds=(0,), requests=100)
        measured = partial(measure, title="accelgen, quick", workers=chosen.workers)
        looked_for = {("mixed", "ours", 0): ("own", search.goodput(tiny, 0, accelgen(tiny)))}
        _, found = search.run(looked_for, measured)
        page.attainment(found, chosen.folder, (tiny,))
        return
    collected = collect(partial(measure, title="accelgen", workers=chosen.workers))
    print(
        results.write("accelgen", COMMAND, figures.figures(*collected), simulated=True, folder=chosen.folder)
    )
    print(page.write(*collected, chosen.folder))


def collect(measured: Measure) -> tuple[Found, Goodputs]:
    """Run all of the study; returns the runs and the goodputs."""
    goodputs, found = search.run(cases.searches(), measured)
    return {**found, **measured(cases.everything())}, goodputs
