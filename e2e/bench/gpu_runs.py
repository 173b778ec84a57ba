"""How far predictions are from the runs that host time is calibrated on: `python -m e2e.bench.gpu_runs`.

vLLM 0.11.0 served Llama-3.1-8B on one H100 at constant rates, for 60 s each, until it was saturated and 440
requests in flight waited for one another; once with prompts that all differ, once with 100 prompts in turn
that are cached (kubernetes-sigs/inference-perf at 7de5ef2e, demos/kubecon-na-2025). `SERVER_HOST_TIME`
(`headrace_engine.cost.host`) and factor and tile loss of `headrace_engine.cost.catalog` are chosen by hand so
that TPOT and the TTFT of the lower loads are met; so these errors are not of a blind prediction.

Writes gpu_runs.json, gpu_runs.md, and the known error that `headrace simulate` prints. The run at 98 %
of what the engine can do is left out of that: there a few percent of step time decide between no queue and a
long one, which the intervals of `headrace simulate` take in by themselves.
"""

import csv
import statistics
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from e2e.bench.report import markdown, results
from e2e.bench.runs.command_line import describe
from headrace_engine.cost import known_error
from headrace_engine.cost.known_error import Comparison
from headrace_operator.predict.cases import read_cases
from headrace_operator.predict.prediction_file import FIGURES, predict_rows

COMMAND = "python -m e2e.bench.gpu_runs"
OPEN = Path(__file__).parents[1] / "data/gpu_runs/open.csv"
AT_THE_EDGE = "ip/vllm+chunking_and_prefix_caching/s4"
JUDGED = {"ttft": "ttft_mean_ms", "tpot": "tpot_mean_ms", "e2e": "e2e_mean_ms"}
SOURCE = (
    "published runs of kubernetes-sigs/inference-perf, 60 s at each load; host time and how long kernels "
    "take in a server were chosen by these runs"
)
INTRODUCTION = """\
vLLM 0.11.0 served Llama-3.1-8B on one H100 (kubernetes-sigs/inference-perf, Apache-2.0); prompts of 204
tokens, 64 of output. The predictions are simulated. Host time and how long kernels take in a server were
chosen by these runs: the errors show how well that can be done, not how well others are predicted. In closed
loops 440 requests are in flight; the measured ones begin with a shorter queue."""


def main() -> None:
    """Predict the runs, compare, write figures, page and known error."""
    describe(__doc__).parse_args()
    cases = read_cases(OPEN)
    measured = {row["id"]: row for row in csv.DictReader(OPEN.read_text().splitlines())}
    predicted = {row["id"]: row for row in predict_rows(cases, Console(stderr=True))}
    errors = {name: errors_of(predicted[name], row) for name, row in measured.items()}
    figures = summarise(errors)
    results.write("gpu_runs", COMMAND, figures, simulated=True)
    known_error.save_comparisons([comparison(errors)])
    header = ["run", *(f"{name.replace('_', ' ')}, %" for name in FIGURES)]
    rows = [[name, *(round(found[each], 1) for each in FIGURES)] for name, found in errors.items()]
    table = markdown.table(header, rows)
    markdown.page("gpu_runs", "Runs that host time is calibrated on", INTRODUCTION, table)


def errors_of(predicted: Mapping[str, str], measured: Mapping[str, str]) -> dict[str, float]:
    """Return the signed error of each figure in percent."""
    return {name: 100 * (float(predicted[name]) / float(measured[name]) - 1) for name in FIGURES}


def summarise(errors: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the median size and the worst error of each judged figure, and of throughput in closed loops."""
    figures = {}
    for short, name in JUDGED.items():
        each = sorted((found[name] for found in errors.values()), key=abs)
        figures[f"{short}_error_median_percent"] = round(statistics.median(map(abs, each)), 2)
        figures[f"{short}_error_worst_percent"] = round(each[-1], 2)
    throughput = [abs(found["completed_rps"]) for found in errors.values()]
    return figures | {"completed_rps_error_worst_percent": round(max(throughput), 2)}


def comparison(errors: Mapping[str, Mapping[str, float]]) -> Comparison:
    """Make what `headrace simulate` is told of these runs."""
    return Comparison(
        model="llama-3-8b",
        gpu="H100",
        tensor_parallel=1,
        engine="vLLM 0.11",
        source=SOURCE,
        runs={
            name: {short: round(found[column], 2) for short, column in JUDGED.items()}  # type: ignore[misc]
            for name, found in errors.items()
            if name != AT_THE_EDGE
        },
    )


if __name__ == "__main__":
    main()
