"""The error that `headrace simulate` prints is the one that was measured."""

import json

from e2e.bench.report.results import RESULTS
from headrace_engine.cost import known_error


def test_the_packaged_errors_are_those_of_the_validation():
    figures = json.loads((RESULTS / "validation.json").read_text())["figures"]
    found = {name: run for each in known_error.load_comparisons() for name, run in each.runs.items()}
    for name in ("pro6000_8b", "qwen3_32b"):
        assert found[name] == {
            figure: figures[f"{name}_{figure}_error_percent"] for figure in known_error.FIGURES
        }
