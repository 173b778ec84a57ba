"""DoublingBudget against stock vLLM on one simulated engine: `python -m e2e.bench.doubling_budget`."""

from dataclasses import replace
from functools import partial

from e2e.bench.doubling_budget import cases, figures, page
from e2e.bench.doubling_budget.figures import Study
from e2e.bench.report import results
from e2e.bench.runs import search, tuning
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.engine import measure
from e2e.bench.runs.search import Measure

COMMAND = "python -m e2e.bench.doubling_budget"


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(chosen: Options) -> None:
    """Simulate what is missing, then write figures, page and picture."""
    if chosen.quick:
        tiny = replace(cases.CONVERSATION, seeds=(0,), requests=100, tuned_on=60)
        measured = partial(measure, title="doubling_budget, quick", workers=chosen.workers)
        search.run({"DoublingBudget": tuning.tune(tiny, cases.doubling_budget, cases.AIM)}, measured)
        return
    study = collect(partial(measure, title="doubling_budget", workers=chosen.workers))
    found = figures.figures(study)
    print(results.write("doubling_budget", COMMAND, found, simulated=True, folder=chosen.folder))
    print(page.write(study, chosen.folder))


def collect(measured: Measure) -> Study:
    """Tune the engines of all three, and run the study with what was found."""
    tunings, _ = tuning.run(cases.wanted(), measured)
    return Study(measured(cases.everything(tunings)), tunings)
