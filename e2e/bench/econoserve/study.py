"""EconoServe against tuned stock vLLM on one simulated engine: `python -m e2e.bench.econoserve`."""

from dataclasses import replace

from e2e.bench.econoserve import cases, figures, page
from e2e.bench.econoserve.cases import KV, LIVE, OURS
from e2e.bench.report import results
from e2e.bench.runs import comparison
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.engine import measure

COMMAND = "python -m e2e.bench.econoserve"


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(chosen: Options) -> None:
    """Simulate what is missing, then write figures, page and picture."""
    if chosen.quick:
        tiny = replace(KV, loads=(0.5, 1.0), others=(), seeds=(0,), requests=100)
        found = measure(comparison.sweep(tiny, (OURS, LIVE)), "econoserve, quick", chosen.workers)
        page.attainment(found, chosen.folder, tiny)
        return
    found = measure(cases.everything(), "econoserve", chosen.workers)
    print(results.write("econoserve", COMMAND, figures.figures(found), simulated=True, folder=chosen.folder))
    print(page.write(found, chosen.folder))
