"""Step times of models on GPUs, composed of measured operators: `python -m e2e.bench.cost_models`.

Writes each target's operators, summed over its layers, into the catalogue
(`headrace_engine/cost/models.json`). It reads its tables along straight lines, with all chunks of a step
equally long and all decodes of equal context: by how much that is off, over random steps composed one by one,
goes into cost_models.json.
"""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from e2e.bench.cost_models import models_file
from e2e.bench.cost_models.architectures import ARCHITECTURES
from e2e.bench.cost_models.batches import random_steps
from e2e.bench.cost_models.composition import GRAPH_TOKENS, Composition
from e2e.bench.cost_models.operators import read_operators
from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from headrace_engine.cost import catalog
from headrace_engine.cost.composed import Axes
from headrace_engine.cost.model import Profile

COMMAND = "python -m e2e.bench.cost_models"
ENGINES = {
    "A100": "vllm-0.14",
    "H100": "vllm-0.24",
    "H200": "vllm-0.24",
}  # of the operators
UTILIZATION = 0.9  # share of a GPU's memory that weights and KV cache may take
STEPS = 500
SEED = 0
DIGITS = 5


def doubling(first: int, last: int, parts: int = 1) -> list[int]:
    """Return sizes that double, and between two of them so many less one at equal distances."""
    found: list[int] = []
    while first < last:
        found += [first + first * part // parts for part in range(parts)]
        first *= 2
    return [*found, last]


AXES = Axes(
    tokens=[
        *doubling(1, 8),
        *doubling(16, GRAPH_TOKENS, 4),
        *(max(tokens, GRAPH_TOKENS + 1) for tokens in doubling(GRAPH_TOKENS, 16384, 4)),
    ],
    sequences=doubling(1, 1024),
    prompts=[1, *doubling(16, 131072, 4)],
    decodes=doubling(1, 2048),
    contexts=doubling(16, 131072),
)


@dataclass(frozen=True, slots=True)
class Target:
    """A model on `gpus` GPUs of a kind, for sequences of at most `longest` tokens."""

    model: str
    gpu: str
    gpus: int
    longest: int


def targets(model: str, longest: int, **gpus: Sequence[int]) -> Iterator[Target]:
    """Yield the targets of a model: each kind of GPU with the numbers of them."""
    for gpu, counts in gpus.items():
        for count in counts:
            yield Target(model, gpu, count, longest)


TARGETS = (
    *targets("llama-2-7b", 4096, A100=[1], H100=[1], H200=[1]),
    *targets("llama-2-13b", 4096, A100=[1], H100=[1], H200=[1]),
    *targets("llama-2-70b", 4096, A100=[4, 8], H100=[4, 8], H200=[4, 8]),
    *targets("llama-3-8b", 131072, A100=[1], H100=[1, 2], H200=[1]),
    *targets("llama-3-70b", 131072, A100=[2, 4, 8], H100=[2, 4, 8], H200=[2, 4, 8]),
    *targets("qwen2.5-7b", 32768, H100=[1]),
    *targets("qwen3-14b", 40960, A100=[1], H100=[1]),
    *targets("qwen3-32b", 40960, A100=[1], H100=[1, 2, 4, 8]),
    *targets("mistral-nemo-12b", 131072, H100=[1, 2]),
    *targets("codellama-34b", 16384, A100=[2], H100=[2]),
    *targets("yi-34b", 4096, H100=[2]),
    *targets("opt-13b", 2048, A100=[1], H100=[1], H200=[1]),
)


def main() -> None:
    """Compose every target and write what was found."""
    describe(__doc__).parse_args()
    document = models_file.read()
    compositions = {target: compose(target) for target in TARGETS}
    needs = {
        model: {"kv_bytes_per_token": each.kv_bytes_per_token, "weight_bytes": each.weight_bytes}
        for model, each in ARCHITECTURES.items()
    }
    entries = [entry(target, composition) for target, composition in compositions.items()]
    models_file.write(document | {"models": needs, "axes": asdict(AXES), "composed": entries})
    figures = {
        f"{_name(target)}_error_percent": round(
            error_percent(target, composition, document["gpu_memory_gib"][target.gpu]), 2
        )
        for target, composition in compositions.items()
    }
    results.write("cost_models", COMMAND, figures, simulated=True)
    print(json.dumps(figures, indent=2))


def compose(target: Target) -> Composition:
    """Return the target's operators."""
    return Composition(ARCHITECTURES[target.model], target.gpu, target.gpus, read_operators(target.gpu))


def entry(target: Target, composition: Composition) -> dict[str, Any]:
    """Return the catalogue's entry, in milliseconds. Time that falls as sizes grow is noise, and levelled."""
    return {
        "model": target.model,
        "gpu": target.gpu,
        "tensor_parallel": target.gpus,
        "engine": ENGINES[target.gpu],
        "max_context": target.longest,
        "products": _rising(composition.products(tokens) for tokens in AXES.tokens),
        "other": _rising(composition.other(tokens) for tokens in AXES.tokens),
        "head": _rising(composition.head(sequences) for sequences in AXES.sequences),
        "prompt": _rising(composition.prompt(tokens) for tokens in AXES.prompts),
        "decode": [
            _rising(composition.decode(decodes, context) for context in AXES.contexts)
            for decodes in AXES.decodes
        ],
    }


def error_percent(target: Target, composition: Composition, gpu_gib: float) -> float:
    """Return by how much steps as the catalogue reads them differ from those composed: the mean, unsigned."""
    architecture = ARCHITECTURES[target.model]
    memory = gpu_gib * catalog.GIB * UTILIZATION * target.gpus
    room = int((memory - architecture.weight_bytes) / architecture.kv_bytes_per_token)
    profile = Profile(target.model, target.gpu, target.gpus, ENGINES[target.gpu], COMMAND)
    found = catalog.read_composed(entry(target, composition), profile, AXES)
    steps = random_steps(STEPS, target.longest, room, SEED)
    return statistics.fmean(
        100 * abs(found.step_seconds(step.batch) / composition.step_seconds(step) - 1) for step in steps
    )


def _rising(seconds: Iterable[float]) -> list[float]:
    return [float(f"{each / catalog.MS:.{DIGITS}g}") for each in itertools.accumulate(seconds, max)]


def _name(target: Target) -> str:
    return f"{target.model}_{target.gpu.lower()}_tp{target.gpus}".replace("-", "_").replace(".", "_")
