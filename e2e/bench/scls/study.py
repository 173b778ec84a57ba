"""SCLS as published, in its paper's setting: `python -m e2e.bench.scls`."""

from dataclasses import replace

from e2e.bench.report import results
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.pool import run_all
from e2e.bench.scls import cases, figures, page

COMMAND = "python -m e2e.bench.scls"


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(chosen: Options) -> None:
    """Simulate what is missing, then write figures, page and pictures."""
    wanted = cases.everything()
    if chosen.quick:
        tiny = [replace(case, seconds=10) for case in wanted if case.seed == 0][:8]
        run_all(tiny, cases.run, "scls, quick", sources=cases.SOURCES, workers=chosen.workers)
        return
    found = run_all(wanted, cases.run, "scls", sources=cases.SOURCES, workers=chosen.workers)
    print(results.write("scls", COMMAND, figures.figures(found), simulated=True, folder=chosen.folder))
    print(page.write(found, chosen.folder))
