"""Which cost model stands for the model that a service serves."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from headrace_engine.cost import catalog
from headrace_engine.cost.model import CostModel
from headrace_operator.api import LLMService
from headrace_operator.simulate.usage_error import UsageError


@dataclass(frozen=True, slots=True)
class Served:
    """The model of a service as the catalogue knows it."""

    name: str
    longest: int | None  # tokens of prompt and output that the weights allow; None if it was not recognised
    told: bool  # by --model instead of by its source


@dataclass(frozen=True, slots=True)
class _Family:
    """Published weights of one shape: a pattern of their names without organisation, and their context."""

    pattern: str
    name: str  # {size} is the pattern's group of that name
    longest: int


# Names on the Hugging Face hub. Quantised weights (-FP8, -AWQ, -GPTQ, ...) take other times and memory.
_CHAT = r"(-instruct|-chat|-it)?(-hf)?"
_FAMILIES = (
    _Family(rf"(meta-)?llama-3\.[13]-(?P<size>8b|70b){_CHAT}", "llama-3-{size}", 131_072),
    _Family(rf"(meta-)?llama-3-(?P<size>8b|70b){_CHAT}", "llama-3-{size}", 8192),
    _Family(rf"llama-2-(?P<size>7b|13b|70b){_CHAT}", "llama-2-{size}", 4096),
    _Family(r"opt-(?P<size>13b)", "opt-{size}", 2048),
    _Family(r"qwen3-(?P<size>14b|32b)", "qwen3-{size}", 40_960),
    _Family(r"qwen3-(?P<size>14b)-base", "qwen3-{size}", 32_768),
    _Family(r"qwen2\.5-(?P<size>7b)-instruct", "qwen2.5-{size}", 32_768),
    _Family(r"qwen2\.5-(?P<size>7b)", "qwen2.5-{size}", 131_072),
    _Family(r"codellama-(?P<size>34b)(-instruct|-python)?(-hf)?", "codellama-{size}", 16_384),
    _Family(r"yi-(?P<size>34b)(-chat)?", "yi-{size}", 4096),
    _Family(r"mistral-nemo-(instruct|base)-2407", "mistral-nemo-12b", 128_000),
)


def find_served_model(service: LLMService, told: str | None) -> Served:
    """Find the catalogue's name of the service's model; UsageError if its source says nothing known."""
    if told is not None:
        return Served(told, None, told=True)
    source = service.spec.model.source
    found = find_family(source)
    if found is not None:
        return Served(*found, told=False)
    raise UsageError(
        f"spec.model.source: no cost model is known for {source}; name one of like size with --model: "
        + ", ".join(list_known("model"))
    )


def find_family(source: str) -> tuple[str, int] | None:
    """Find the catalogue's name and the longest context, tokens, of weights on the hub; None if unknown."""
    last = source.rpartition("/")[2].lower()
    for family in _FAMILIES:
        match = re.fullmatch(family.pattern, last)
        if match:
            return family.name.format(**match.groupdict()), family.longest
    return None


def list_known(what: Literal["model", "gpu"]) -> list[str]:
    """List the models or GPUs that have a cost model."""
    return list(dict.fromkeys(getattr(profile, what) for profile in catalog.list_profiles()))


def list_sizes(model: str, gpu: str) -> list[int]:
    """List the numbers of GPUs on which step times of `model` are known, ascending."""
    wanted = (model.rpartition("/")[2].lower(), gpu.lower())
    return sorted(
        {each.tensor_parallel for each in catalog.list_profiles() if (each.model, each.gpu.lower()) == wanted}
    )


def find_cost_model(model: str, gpu: str, tensor_parallel: int) -> CostModel:
    """Find the newest cost model of `model` on so many GPUs; raises UsageError that lists what exists."""
    try:
        return catalog.find_cost_model(model, gpu, tensor_parallel)
    except catalog.UnknownProfileError as error:
        raise UsageError(_advice(model, gpu, tensor_parallel)) from error


def _advice(model: str, gpu: str, tensor_parallel: int) -> str:
    """Name the first of model, GPU and number of GPUs that has no cost model, with those that have."""
    profiles = [each for each in catalog.list_profiles() if each.model == model.rpartition("/")[2].lower()]
    if not profiles:
        return f"--model: no cost model for {model}; there are {', '.join(list_known('model'))}"
    gpus = dict.fromkeys(each.gpu for each in profiles)
    sizes = dict.fromkeys(str(each.tensor_parallel) for each in profiles if each.gpu.lower() == gpu.lower())
    if not sizes:
        return f"--gpu: no cost model for {model} on {gpu}; there are {', '.join(gpus)}"
    return (
        f"spec.engine.tensorParallelSize: no cost model for {model} on {tensor_parallel} x {gpu}; "
        f"there are for {', '.join(sizes)}"
    )
