"""EconoServe against tuned stock vLLM on one simulated engine: `python -m e2e.bench.econoserve`."""

from dataclasses import replace
from functools import partial

from e2e.bench.econoserve import cases, figures, page
from e2e.bench.econoserve.cases import KV, LIVE
from e2e.bench.report import results
from e2e.bench.runs import search, tuning
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.comparison import Found
from e2e.bench.runs.engine import measure
from e2e.bench.runs.search import Measure
from e2e.bench.runs.tuning import Tunings

COMMAND = "python -m e2e.bench.econoserve"


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(chosen: Options) -> None:
    """Simulate what is missing, then write figures, page and picture."""
    if chosen.quick:
        tiny = replace(KV, loads=(0.5, 1.0), others=(), seeds=(0,), requests=100, tuned_on=60)
        measured = partial(measure, title="econoserve, quick", workers=chosen.workers)
        search.run({"EconoServe": tuning.tune(tiny, LIVE, cases.LATENCY)}, measured)
        return
    study = collect(partial(measure, title="econoserve", workers=chosen.workers))
    print(results.write("econoserve", COMMAND, figures.figures(*study), simulated=True, folder=chosen.folder))
    print(page.write(*study, chosen.folder))


def collect(measured: Measure) -> tuple[Found, Tunings]:
    """Tune both, and run the study with what was found."""
    tunings, _ = tuning.run(cases.wanted(), measured)
    return measured(cases.everything(tunings)), tunings
