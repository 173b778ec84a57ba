"""How far predictions are from the runs that host time is calibrated on: `python -m e2e.bench.gpu_runs`.

One GPU: vLLM 0.11.0 served Llama-3.1-8B on an H100 at constant rates, for 60 s each, until it was saturated
and 440 requests in flight waited for one another; once with prompts that all differ, once with 100 prompts in
turn that are cached (kubernetes-sigs/inference-perf at 7de5ef2e, demos/kubecon-na-2025). Several GPUs: vLLM
0.12.0 served Qwen3-32B on two, four and eight H100, 8 to 128 requests in flight (aiconfigurator-core 0.12.0);
only their time per token is compared, since all began at once, which TTFT tells of.

`server_host_time` (`headrace_engine.cost.host`), the loss of tiles (`headrace_engine.cost.composed`) and what
products of few tokens take (`e2e.bench.cost_models.composition`) are chosen by hand so that these are met; so
these errors are not of a blind prediction.

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
FOLDER = Path(__file__).parents[1] / "data/gpu_runs"
ONE_GPU, SEVERAL_GPUS = FOLDER / "one_gpu.csv", FOLDER / "several_gpus.csv"
AT_THE_EDGE = "ip/vllm+chunking_and_prefix_caching/s4"
JUDGED = {"ttft": "ttft_mean_ms", "tpot": "tpot_mean_ms", "e2e": "e2e_mean_ms"}
CHOSEN = "host time and how long kernels take in a server were chosen by these runs"
INTRODUCTION = f"""\
The predictions are simulated. {CHOSEN[0].upper()}{CHOSEN[1:]}: the errors show how
well that can be done, not how well others are predicted."""
ON_ONE = """\
## One GPU

vLLM 0.11.0 served Llama-3.1-8B on one H100 (kubernetes-sigs/inference-perf, Apache-2.0); prompts of 204
tokens, 64 of output. In closed loops 440 requests are in flight; the measured ones begin with a shorter
queue."""
ON_SEVERAL = """\
## Several GPUs

vLLM 0.12.0 served Qwen3-32B on H100 (aiconfigurator-core 0.12.0, NVIDIA, Apache-2.0), so many requests in
flight at all times: the error of the time per output token, in percent."""

Row = Mapping[str, str]
Pairs = Mapping[str, tuple[Row, Row]]  # by the run's name, as predicted and as measured


def main() -> None:
    """Predict the runs, compare, write figures, page and known error."""
    describe(__doc__).parse_args()
    errors = {name: errors_of(*pair) for name, pair in pairs_of(ONE_GPU).items()}
    several = pairs_of(SEVERAL_GPUS)
    figures = summarise(errors) | summarise_several(several)
    results.write("gpu_runs", COMMAND, figures, simulated=True)
    known_error.save_comparisons([comparison(errors), *comparisons_of_several(several)])
    header = ["run", *(f"{name.replace('_', ' ')}, %" for name in FIGURES)]
    rows: list[list[markdown.Cell]] = [
        [name, *(round(found[each], 1) for each in FIGURES)] for name, found in errors.items()
    ]
    parts = [INTRODUCTION, ON_ONE, markdown.table(header, rows), ON_SEVERAL, table_of_several(several)]
    markdown.page("gpu_runs", "Runs that host time is calibrated on", *parts)


def pairs_of(path: Path) -> Pairs:
    """Predict the runs of a file, and read what was measured."""
    measured = {row["id"]: row for row in csv.DictReader(path.read_text().splitlines())}
    predicted = predict_rows(read_cases(path), Console(stderr=True))
    return {row["id"]: (row, measured[row["id"]]) for row in predicted}


def errors_of(predicted: Row, measured: Row) -> dict[str, float]:
    """Return the signed error in percent of each figure that was measured."""
    return {
        name: 100 * (float(predicted[name]) / float(measured[name]) - 1)
        for name in FIGURES
        if name in measured
    }


def summarise(errors: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the median size and the worst error of each judged figure, and of throughput in closed loops."""
    figures: dict[str, float] = {}
    for short, name in JUDGED.items():
        figures |= _spread(f"{short}_error", [found[name] for found in errors.values()])
    throughput = [abs(found["completed_rps"]) for found in errors.values()]
    return figures | {"completed_rps_error_worst_percent": round(max(throughput), 2)}


def summarise_several(pairs: Pairs) -> dict[str, float]:
    """Return the median size and the worst error of the time per token on several GPUs."""
    return _spread("several_gpus_tpot_error", [errors_of(*pair)["tpot_mean_ms"] for pair in pairs.values()])


def _spread(name: str, errors: list[float]) -> dict[str, float]:
    worst = max(errors, key=abs)
    median = statistics.median(map(abs, errors))
    return {f"{name}_median_percent": round(median, 2), f"{name}_worst_percent": round(worst, 2)}


def comparison(errors: Mapping[str, Mapping[str, float]]) -> Comparison:
    """Make what `headrace simulate` is told of the runs on one GPU."""
    return Comparison(
        model="llama-3-8b",
        gpu="H100",
        tensor_parallel=1,
        engine="vLLM 0.11",
        source=f"published runs of kubernetes-sigs/inference-perf, 60 s at each load; {CHOSEN}",
        runs={
            name: {short: round(found[column], 2) for short, column in JUDGED.items()}  # type: ignore[misc]
            for name, found in errors.items()
            if name != AT_THE_EDGE
        },
    )


def comparisons_of_several(pairs: Pairs) -> list[Comparison]:
    """Make what `headrace simulate` is told of the runs on several GPUs, for each number of them."""
    return [
        Comparison(
            model="qwen3-32b",
            gpu="H100",
            tensor_parallel=gpus,
            engine="vLLM 0.12",
            source=f"runs in aiconfigurator-core 0.12.0, requests always in flight; {CHOSEN}",
            runs={
                name: {"tpot": round(errors_of(*pair)["tpot_mean_ms"], 2)}
                for name, pair in pairs.items()
                if int(pair[1]["tp"]) == gpus
            },
        )
        for gpus in sorted({int(measured["tp"]) for _, measured in pairs.values()})
    ]


def table_of_several(pairs: Pairs) -> str:
    """Make a table of the errors of TPOT: GPUs and lengths in rows, requests in flight in columns."""
    cells: dict[tuple[str, str, str], dict[int, float]] = {}
    for predicted, measured in pairs.values():
        row = cells.setdefault((measured["tp"], measured["prompt_tokens"], measured["output_tokens"]), {})
        row[int(measured["concurrency"])] = round(errors_of(predicted, measured)["tpot_mean_ms"], 1)
    flights = sorted({flight for row in cells.values() for flight in row})
    header = ["GPUs", "prompt", "output", *(f"{flight} in flight" for flight in flights)]
    rows: list[list[markdown.Cell]] = [
        [*lengths, *(row.get(flight) for flight in flights)] for lengths, row in cells.items()
    ]
    return markdown.table(header, rows)


if __name__ == "__main__":
    main()
