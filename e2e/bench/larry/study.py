"""LARRY against stock vLLM, default and tuned, on one simulated engine: `python -m e2e.bench.larry`."""

from dataclasses import replace
from functools import partial

from e2e.bench.larry import cases, figures, page
from e2e.bench.larry.figures import Study
from e2e.bench.report import results
from e2e.bench.runs import search, tuning
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.engine import measure
from e2e.bench.runs.search import Measure

COMMAND = "python -m e2e.bench.larry"
QUICK = replace(
    cases.CODE,
    loads=(0.1, 0.7),
    others=(),
    seeds=(0,),
    requests=150,
    tuned_on=100,
    name="a tiny piece of Azure code",
)


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(chosen: Options) -> None:
    """Simulate what is missing, then write figures, page and pictures."""
    if chosen.quick:
        measured = partial(measure, title="larry, quick", workers=chosen.workers)
        search.run({"LARRY": tuning.tune(QUICK, cases.larry, cases.LATENCY)}, measured)
        page.curve(measured(cases.ageing(QUICK)), (QUICK,), chosen.folder)
        return
    study = collect(partial(measure, title="larry", workers=chosen.workers))
    print(results.write("larry", COMMAND, figures.figures(study), simulated=True, folder=chosen.folder))
    print(page.write(study, chosen.folder))


def collect(measured: Measure) -> Study:
    """Tune both, and run the study with what was found."""
    tunings, _ = tuning.run(cases.wanted(), measured)
    return Study(measured(cases.everything(tunings)), tunings)
