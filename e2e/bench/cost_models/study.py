"""Step times of models on GPUs, composed of measured operators and fitted: `python -m e2e.bench.cost_models`.

For each target random steps are composed (`composition.py`) and the knee form is fitted to 70 % of them; the
error on the rest is the model's `error_percent`. Writes the targets into the catalogue
(`headrace_engine/cost/models.json`) and cost_models.json.

Studies rest on the catalogue's other knees, which are not fitted here. Some are composed again, and the mean
difference in step time is told. Where there are several GPUs they differ for a reason: those assume a ring of
230 (A100) or 360 GB/s (H100, H200) and 14 µs for an all-reduce; here its measured times are taken, which are
shorter in small steps and longer in large ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from e2e.bench.cost_models import models_file
from e2e.bench.cost_models.architectures import ARCHITECTURES
from e2e.bench.cost_models.batches import random_steps
from e2e.bench.cost_models.composition import Composition
from e2e.bench.cost_models.knee_fit import error_percent, fit_knee
from e2e.bench.cost_models.operators import read_operators
from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from headrace_engine.cost import catalog
from headrace_engine.cost.forms import Knee
from headrace_engine.cost.model import Batch, Profile

COMMAND = "python -m e2e.bench.cost_models"
ENGINES = {
    "A100": "vllm-0.14",
    "H100": "vllm-0.24",
    "H200": "vllm-0.24",
}  # of the operators
UTILIZATION = 0.9  # share of a GPU's memory that weights and KV cache may take
STEPS = 1600
HELD_OUT = 480
SEED = 0


@dataclass(frozen=True, slots=True)
class Target:
    """A model on `gpus` GPUs of a kind, for sequences of at most `longest` tokens."""

    model: str
    gpu: str
    gpus: int
    longest: int


TARGETS = (
    Target("llama-3-8b", "H100", 2, 8192),
    Target("llama-3-70b", "A100", 2, 8192),
    Target("llama-3-70b", "H100", 2, 8192),
    Target("llama-3-70b", "H200", 2, 8192),
    Target("qwen2.5-7b", "H100", 1, 32768),
    Target("qwen3-14b", "A100", 1, 40960),
    Target("qwen3-14b", "H100", 1, 40960),
    Target("qwen3-32b", "A100", 1, 40960),
    Target("qwen3-32b", "H100", 1, 40960),
    Target("mistral-nemo-12b", "H100", 1, 32768),
    Target("mistral-nemo-12b", "H100", 2, 32768),
    Target("codellama-34b", "A100", 2, 16384),
    Target("codellama-34b", "H100", 2, 16384),
    Target("yi-34b", "H100", 2, 4096),
)
OLDER = (
    Target("llama-3-8b", "A100", 1, 8192),
    Target("llama-3-8b", "H100", 1, 8192),
    Target("llama-3-8b", "H200", 1, 8192),
    Target("llama-2-70b", "A100", 4, 4096),
    Target("llama-2-70b", "H100", 4, 4096),
)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The knee of a target, and the steps that it was fitted to and tried on."""

    cost: Knee
    batches: Sequence[Batch]
    error_percent: float


def main() -> None:
    """Fit every target and write what was found."""
    describe(__doc__).parse_args()
    document = models_file.read()
    figures: dict[str, float] = {}
    for target in OLDER:
        figures[f"{_name(target)}_from_older_percent"] = round(from_older(target, document), 2)
    for target in TARGETS:
        fitted = fit(target, document)
        figures[f"{_name(target)}_error_percent"] = round(fitted.error_percent, 2)
        document = models_file.put(document, entry(target, fitted), ARCHITECTURES[target.model])
    models_file.write(document)
    results.write("cost_models", COMMAND, figures, simulated=True)
    print(json.dumps(figures, indent=2))


def fit(target: Target, document: models_file.Document) -> Fitted:
    """Compose random steps of the target and fit them."""
    architecture = ARCHITECTURES[target.model]
    memory = document["gpu_memory_gib"][target.gpu] * catalog.GIB * UTILIZATION * target.gpus
    room = int((memory - architecture.weight_bytes) / architecture.kv_bytes_per_token)
    composition = Composition(architecture, target.gpu, target.gpus, read_operators(target.gpu))
    steps = list(random_steps(STEPS, target.longest, room, SEED))
    batches = [step.batch for step in steps]
    seconds = [composition.step_seconds(step) for step in steps]
    profile = Profile(target.model, target.gpu, target.gpus, ENGINES[target.gpu], COMMAND)
    cost = fit_knee(profile, batches[HELD_OUT:], seconds[HELD_OUT:])
    return Fitted(cost, batches, error_percent(cost, batches[:HELD_OUT], seconds[:HELD_OUT]))


def from_older(target: Target, document: models_file.Document) -> float:
    """Return by how many percent step times differ on average from those of the catalogue's entry."""
    fitted = fit(target, document)
    known = catalog.find_cost_model(target.model, target.gpu, target.gpus)
    assert isinstance(known, Knee)
    # as its tables say, without what the catalogue adds for a server
    bare = replace(known, per_token=known.per_token / catalog.COMPUTE_FACTOR, tile_loss=0)
    return error_percent(fitted.cost, fitted.batches, [bare.step_seconds(batch) for batch in fitted.batches])


def entry(target: Target, fitted: Fitted) -> dict[str, Any]:
    """Return the catalogue's entry: milliseconds per unit, six digits."""
    cost = fitted.cost
    return {
        "model": target.model,
        "gpu": target.gpu,
        "tensor_parallel": target.gpus,
        "engine": ENGINES[target.gpu],
        "max_context": target.longest,
        "error_percent": round(fitted.error_percent, 1),
        "c0": _milliseconds(cost.fixed),
        "w_mem": _milliseconds(cost.floor),
        "c_tok": _milliseconds(cost.per_token),
        "p": cost.sharpness,
        "a2": _milliseconds(cost.per_work),
        "a3": _milliseconds(cost.per_decode),
        "a4": _milliseconds(cost.per_context),
    }


def _milliseconds(seconds: float) -> float:
    return float(f"{seconds / catalog.MS:.6g}")


def _name(target: Target) -> str:
    return f"{target.model}_{target.gpu.lower()}_tp{target.gpus}".replace("-", "_").replace(".", "_")
