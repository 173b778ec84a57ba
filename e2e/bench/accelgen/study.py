"""AccelGen against tuned stock vLLM on one simulated engine: `python -m e2e.bench.accelgen`."""

from dataclasses import replace
from functools import partial

from e2e.bench.accelgen import cases, figures, page
from e2e.bench.accelgen.cases import MIXED, accelgen
from e2e.bench.accelgen.figures import Study
from e2e.bench.report import results
from e2e.bench.runs import search, tuning
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.engine import measure
from e2e.bench.runs.search import Measure

COMMAND = "python -m e2e.bench.accelgen"


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(chosen: Options) -> None:
    """Simulate what is missing, then write figures, page and picture."""
    if chosen.quick:
        tiny = replace(MIXED, loads=(0.5, 1.0), seeds=(0,), requests=100, tuned_on=60)
        measured = partial(measure, title="accelgen, quick", workers=chosen.workers)
        search.run({"AccelGen": tuning.tune(tiny, accelgen(tiny), f"{tuning.MET}own")}, measured)
        return
    study = collect(partial(measure, title="accelgen", workers=chosen.workers))
    print(results.write("accelgen", COMMAND, figures.figures(study), simulated=True, folder=chosen.folder))
    print(page.write(study, chosen.folder))


def collect(measured: Measure) -> Study:
    """Tune both, look for goodputs, and run the rest of the study."""
    tunings, _ = tuning.run(cases.wanted(), measured)
    goodputs, found = search.run(cases.searches(tunings), measured)
    return Study({**found, **measured(cases.everything(tunings))}, goodputs, tunings)
