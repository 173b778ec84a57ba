"""Published cost models by the names of model and GPU; `models.json` beside this file holds them.

Times there are milliseconds.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from headrace_engine.cost.composed import Axes, Composed
from headrace_engine.cost.forms import PhaseLine, TwoPhase
from headrace_engine.cost.model import CostModel, Profile

MS = 1e-3
GIB = 2**30


class UnknownProfileError(LookupError):
    """No cost model fits; the message lists those that exist."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model needs of a GPU's memory, in bf16."""

    model: str
    kv_bytes_per_token: int  # over all GPUs of a tensor-parallel group
    weight_bytes: int


def find_cost_model(model: str, gpu: str, tensor_parallel: int = 1, engine: str | None = None) -> CostModel:
    """Find the cost model of `model` on `tensor_parallel` GPUs; names are compared without case.

    A Hugging Face name with its organisation (`meta-llama/Llama-3-8B`) is found by its last part. Where there
    are several, `engine` picks one by a part of its name, and without it the newest engine is taken. Raises
    UnknownProfileError.
    """
    wanted = (_plain(model), gpu.lower(), tensor_parallel)
    found = [
        cost
        for cost in _all()
        if (cost.profile.model, cost.profile.gpu.lower(), cost.profile.tensor_parallel) == wanted
        and (engine is None or engine.lower() in cost.profile.engine.lower())
    ]
    if not found:
        raise UnknownProfileError(_unknown(model, gpu, tensor_parallel, engine))
    return found[0]


def list_profiles() -> list[Profile]:
    """Return every profile that `find_cost_model` knows."""
    return [cost.profile for cost in _all()]


def find_shape(model: str) -> Shape:
    """Return what `model` needs of memory; raises UnknownProfileError."""
    models = _document()["models"]
    entry = models.get(_plain(model))
    if entry is None:
        raise UnknownProfileError(f"no model {model!r}; there are {', '.join(models)}")
    return Shape(_plain(model), entry["kv_bytes_per_token"], entry["weight_bytes"])


def kv_tokens(model: str, gpu: str, tensor_parallel: int = 1, utilization: float = 0.9) -> int:
    """Count the tokens that the KV cache holds: what `utilization` of memory leaves beside the weights.

    Without what vLLM measures for activations and CUDA graphs (one to some GiB), so an upper bound. Raises
    UnknownProfileError.
    """
    need = find_shape(model)
    left = gpu_bytes(gpu) * tensor_parallel * utilization - need.weight_bytes
    return max(0, int(left // need.kv_bytes_per_token))


def gpu_bytes(gpu: str) -> int:
    """Return the memory of a GPU; raises UnknownProfileError."""
    memory = {name.lower(): int(size * GIB) for name, size in _document()["gpu_memory_gib"].items()}
    if gpu.lower() not in memory:
        raise UnknownProfileError(f"no GPU {gpu!r}; there are {', '.join(_document()['gpu_memory_gib'])}")
    return memory[gpu.lower()]


def _plain(model: str) -> str:
    return model.rpartition("/")[2].lower()


def _unknown(model: str, gpu: str, tensor_parallel: int, engine: str | None) -> str:
    asked = f"{model} on {tensor_parallel} x {gpu}" + (f" with engine {engine!r}" if engine else "")
    known = "; ".join(
        f"{p.model} on {p.tensor_parallel} x {p.gpu} ({p.engine})"
        for p in sorted(list_profiles(), key=_order)
    )
    return f"no cost model for {asked}; there are: {known}"


def _order(profile: Profile) -> tuple[str, str, int]:
    return profile.model, profile.gpu, profile.tensor_parallel


@functools.cache
def _document() -> Mapping[str, Any]:
    text = resources.files(__package__).joinpath("models.json").read_text("utf-8")
    document: Mapping[str, Any] = json.loads(text)
    return document


@functools.cache
def _all() -> tuple[CostModel, ...]:
    document = _document()
    return (
        *(
            read_composed(entry, _profile(entry, document["engines"]), Axes(**document["axes"]))
            for entry in document["composed"]
        ),
        *(_two_phase(entry, document["engines"]) for entry in document["two_phase"]),
    )


def _profile(entry: Mapping[str, Any], engines: Mapping[str, Any]) -> Profile:
    engine = engines[entry["engine"]]
    return Profile(
        entry["model"],
        entry["gpu"],
        entry["tensor_parallel"],
        engine["name"],
        engine["source"],
        entry.get("max_context"),
    )


def read_composed(entry: Mapping[str, Any], profile: Profile, axes: Axes) -> Composed:
    """Read an entry of the file."""
    products, other = _seconds(entry["products"]), _seconds(entry["other"])
    return Composed(
        profile,
        axes,
        dense=[each + more for each, more in zip(products, other, strict=True)],
        head=_seconds(entry["head"]),
        prompt=_seconds(entry["prompt"]),
        decode=[_seconds(line) for line in entry["decode"]],
    )


def _seconds(milliseconds: Sequence[float]) -> list[float]:
    return [each * MS for each in milliseconds]


def _two_phase(entry: Mapping[str, Any], engines: Mapping[str, Any]) -> TwoPhase:
    fixed, per_token, per_square = (value * MS for value in entry["prefill"])
    return TwoPhase(
        _profile(entry, engines),
        prefill=PhaseLine(fixed, per_token, per_square),
        small_decode=_decode(entry["small_decode"]),
        large_decode=_decode(entry["large_decode"]),
        large_from=entry["large_from"],
    )


def _decode(published: list[float]) -> PhaseLine:
    """Read a line that is published as fixed, per context token, per decode."""
    fixed, per_context, per_decode = (value * MS for value in published)
    return PhaseLine(fixed, per_decode, per_context)
