"""How far the simulator was from measured vLLM runs; `known_error.json` beside this file holds every run.

    {"compared": [{"model": "llama-3-8b", "gpu": "H100", "tensor_parallel": 1, "engine": "vLLM 0.15.1",
                   "source": "one line: whose runs, and what was fitted to them if anything",
                   "runs": {"a name": {"ttft": -7.1, "tpot": -2.8, "e2e": -3.9}}}]}

Model, GPU and number of GPUs are named as in `models.json` where that has them. A run's errors are those of
its means in percent, simulated over measured less one: below zero the simulator was too fast. A figure that
was not measured is left out.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

PATH = Path(__file__).with_name("known_error.json")
COVERED = 0.95  # share of the runs that `off_by` covers; of fewer than 20 runs it is the worst

Figure = Literal["ttft", "tpot", "e2e"]
FIGURES: tuple[Figure, ...] = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Measured runs of one model, GPU and engine version, and how far simulations of them were off."""

    model: str
    gpu: str
    tensor_parallel: int
    engine: str  # name and version
    source: str  # one line
    runs: Mapping[str, Mapping[Figure, float]]  # signed percent by the run's name

    def errors(self, figure: Figure) -> list[float]:
        """Return the signed errors of a figure in percent, one of each run that has it."""
        return [run[figure] for run in self.runs.values() if figure in run]


def load_comparisons(path: Path = PATH) -> list[Comparison]:
    """Read every comparison there is."""
    return [Comparison(**entry) for entry in json.loads(path.read_text("utf-8"))["compared"]]


def save_comparisons(new: Iterable[Comparison], path: Path = PATH) -> None:
    """Write comparisons in the place of those with the same model, GPUs, engine and source; others stay."""
    kept = {_identity(each): each for each in load_comparisons(path)} if path.exists() else {}
    kept |= {_identity(each): each for each in new}
    entries = [asdict(kept[key]) for key in sorted(kept)]
    path.write_text(json.dumps({"compared": entries}, indent=1) + "\n", "utf-8")


def find_comparisons(
    comparisons: Iterable[Comparison], model: str, gpu: str, tensor_parallel: int
) -> list[Comparison]:
    """Return those of the same model on as many GPUs of the same kind, whatever the engine's version."""
    wanted = (model.lower(), gpu.lower(), tensor_parallel)
    return [each for each in comparisons if (each.model, each.gpu.lower(), each.tensor_parallel) == wanted]


def median_error(comparisons: Iterable[Comparison], figure: Figure) -> float | None:
    """Return the median size of the runs' errors in percent; None if no run has the figure."""
    errors = [abs(error) for each in comparisons for error in each.errors(figure)]
    return statistics.median(errors) if errors else None


def worst_error(comparisons: Iterable[Comparison], figure: Figure) -> float | None:
    """Return the largest error in percent, signed; None if no run has the figure."""
    errors = [error for each in comparisons for error in each.errors(figure)]
    return max(errors, key=_factor) if errors else None


def off_by(comparisons: Iterable[Comparison], figure: Figure) -> float:
    """Return the factor by which a figure may be off either way: what covers `COVERED` of the runs.

    A simulation that was too fast by half and one that took twice as long are both off by a factor of 2. It
    is 1 without any run.
    """
    factors = sorted(_factor(error) for each in comparisons for error in each.errors(figure))
    return factors[math.ceil(COVERED * (len(factors) - 1))] if factors else 1.0


def widest(comparisons: Sequence[Comparison], figure: Figure) -> float:
    """Return the largest factor by which any model and GPU is off: for one that was never compared."""
    groups = {(each.model, each.gpu, each.tensor_parallel) for each in comparisons}
    return max((off_by(find_comparisons(comparisons, *group), figure) for group in groups), default=1.0)


def _factor(error: float) -> float:
    """Return how many times too much or too little; infinity where the simulation took no time at all."""
    ratio = 1 + error / 100
    return math.inf if ratio <= 0 else max(ratio, 1 / ratio)


def _identity(comparison: Comparison) -> tuple[str, str, int, str, str]:
    return (
        comparison.model,
        comparison.gpu,
        comparison.tensor_parallel,
        comparison.engine,
        comparison.source,
    )
