"""LARRY against stock vLLM, default and tuned, on one simulated engine: `python -m e2e.bench.larry`."""

from dataclasses import replace

from e2e.bench.larry import cases, figures, page
from e2e.bench.report import results
from e2e.bench.runs.command_line import Options, parse_options
from e2e.bench.runs.engine import Case, measure

COMMAND = "python -m e2e.bench.larry"
QUICK = replace(
    cases.CODE, loads=(0.1, 0.7), others=(), seeds=(0,), requests=150, name="a tiny piece of Azure code"
)


def main() -> None:
    """Run the study by its command line."""
    run(parse_options(__doc__))


def run(chosen: Options) -> None:
    """Simulate what is missing, then write figures, page and pictures."""
    if chosen.quick:
        found = measure(_tiny(), "larry, quick", chosen.workers)
        page.curve(found, (QUICK,), chosen.folder)
        return
    found = measure(cases.everything(), "larry", chosen.workers)
    print(results.write("larry", COMMAND, figures.figures(found), simulated=True, folder=chosen.folder))
    print(page.write(found, chosen.folder))


def _tiny() -> list[Case]:
    made = [each for case in cases.points(QUICK) for each in (case, cases.larry(case))]
    case = QUICK.case(QUICK.point, 0)
    return list(dict.fromkeys([*made, *(cases.larry(case, patience=each) for each in cases.PATIENCES)]))
