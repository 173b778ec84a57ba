"""How far the simulator is from measured vLLM runs, request by request: `python -m e2e.bench.validation`.

Writes validation.json, .md, .png and .svg, and the known error that `headrace simulate` prints. No run is
fitted.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from e2e.bench.report import markdown, plots, results
from e2e.bench.runs.command_line import describe
from e2e.bench.validation.measured import PRO6000_8B, QWEN3_32B, Machine, Times, recorded, simulated, times
from headrace_engine.cost import known_error
from headrace_engine.cost.known_error import FIGURES, Comparison

COMMAND = "python -m e2e.bench.validation"
RUNS = {"pro6000_8b": PRO6000_8B, "qwen3_32b": QWEN3_32B}
MODELS = {"pro6000_8b": "llama-3-8b", "qwen3_32b": "qwen3-32b"}  # by the cost models' names
WHAT = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}
QUANTILES = (10, 50, 90, 95, 99)
SOURCE = (
    "300 requests at 10 per second, published by LLMServingSim; operator tables of the GPU, nothing fitted"
)


def error_percent(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the signed error of our mean, in percent."""
    return 100 * (float(np.mean(ours)) / float(np.mean(theirs)) - 1)


def mape_percent(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Mean absolute error of single requests, in percent of what was measured."""
    return 100 * float(np.mean(np.abs(np.divide(ours, theirs) - 1)))


def figures_of(ours: Times, theirs: Times) -> dict[str, float]:
    """Return error of each mean and of single requests."""
    pairs = {key: (getattr(ours, key), getattr(theirs, key)) for key in WHAT}
    figures = {f"{key}_error_percent": round(error_percent(*pair), 2) for key, pair in pairs.items()}
    return figures | {f"{key}_mape_percent": round(mape_percent(*pair), 2) for key, pair in pairs.items()}


def main() -> None:
    """Simulate the measured runs, compare, and write figures and page."""
    describe(__doc__).parse_args()
    compared = {key: (times(simulated(machine)), recorded(machine)) for key, machine in RUNS.items()}
    figures = {
        f"{key}_{name}": value for key, pair in compared.items() for name, value in figures_of(*pair).items()
    }
    results.write("validation", COMMAND, figures, simulated=True)
    known_error.save_comparisons(comparisons(figures))
    path = draw(compared)
    tables = [part for key, pair in compared.items() for part in _section(RUNS[key], *pair)]
    picture = markdown.picture(path, "Each dot is a request: simulated over measured. The line is no error.")
    markdown.page("validation", "Simulated and measured vLLM", INTRODUCTION, picture, *tables)
    print(json.dumps(figures, indent=2))


INTRODUCTION = """\
vLLM 0.19 served 300 ShareGPT lengths at about 10 requests a second; LLMServingSim published when each got
its first and its last token. The simulator serves the same arrivals with vLLM's own scheduler (0.32). Step
times are composed from operator tables of the same GPU, nothing is fitted to a run and no overhead is
added. `e2e/bench/validation/measured.py` says where each setting is known from. With two GPUs the time of the
all-reduces is an assumption."""


def comparisons(figures: Mapping[str, float]) -> list[Comparison]:
    """Make what `headrace simulate` is told of these runs."""
    return [
        Comparison(
            model=MODELS[run],
            gpu="RTX PRO 6000",
            tensor_parallel=machine.gpus,
            engine="vLLM 0.19",
            source=SOURCE,
            runs={run: {figure: figures[f"{run}_{figure}_error_percent"] for figure in FIGURES}},
        )
        for run, machine in RUNS.items()
    ]


def draw(compared: dict[str, tuple[Times, Times]], folder: Path = results.RESULTS) -> Path:
    """Draw each request's measured and simulated times as validation.svg and .png; returns the SVG."""
    with mpl.rc_context(plots.STYLE):
        figure = Figure(figsize=(9.6, 3.1 * len(compared)), layout="constrained")
        panels = figure.subplots(len(compared), len(WHAT), squeeze=False)
        for row, (run, (ours, theirs)) in zip(panels, compared.items(), strict=True):
            for panel, (key, name) in zip(row, WHAT.items(), strict=True):
                measured, found = getattr(theirs, key), getattr(ours, key)
                most = max(*measured, *found) * 1.05
                panel.plot([0, most], [0, most], color=plots.FAINT, linewidth=1)
                panel.scatter(measured, found, s=7, color=plots.COLOURS[0], alpha=0.45, linewidths=0)
                panel.set(xlim=(0, most), ylim=(0, most), xlabel="measured, s", ylabel="simulated, s")
                error, single = error_percent(found, measured), mape_percent(found, measured)
                panel.set_title(
                    f"{name}: mean {error:+.1f} %, single {single:.1f} %", loc="left", fontsize=9.5
                )
            row[0].annotate(
                RUNS[run].title, (0, 1.14), xycoords="axes fraction", fontsize=10.5, fontweight="bold"
            )
        path = folder / "validation.svg"
        figure.savefig(path, metadata={"Date": None})
        figure.savefig(path.with_suffix(".png"), dpi=140)
    return path


def _spread(values: np.ndarray) -> list[float]:
    """Return the mean, and each of `QUANTILES`."""
    return [float(np.mean(values)), *(float(np.percentile(values, q)) for q in QUANTILES)]


def _section(machine: Machine, ours: Times, theirs: Times) -> tuple[str, str]:
    header = ["seconds", "", "mean", *(f"p{q}" for q in QUANTILES), "single requests"]
    rows: list[list[markdown.Cell]] = []
    for key, name in WHAT.items():
        found, measured = getattr(ours, key), getattr(theirs, key)
        simulated_at, measured_at = _spread(found), _spread(measured)
        rows.append([name, "measured", *measured_at, None])
        rows.append(["", "simulated", *simulated_at, None])
        off = [f"{100 * (a / b - 1):+.1f} %" for a, b in zip(simulated_at, measured_at, strict=True)]
        rows.append(["", "error", *off, f"{mape_percent(found, measured):.1f} %"])
    return f"## {machine.title}", markdown.table(header, rows)
