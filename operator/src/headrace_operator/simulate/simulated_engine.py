"""From a service to the engine that is simulated: vLLM's settings, and the KV cache that fits its GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from headrace_engine.cost import catalog
from headrace_engine.cost.model import Profile
from headrace_engine.sim.settings import EngineSettings
from headrace_operator.api import LLMService, engine_arguments
from headrace_operator.api.engine_arguments import Options
from headrace_operator.simulate import arguments
from headrace_operator.simulate.models import Served
from headrace_operator.simulate.usage_error import UsageError

GIB = 2**30

# vLLM 0.32's defaults of its OpenAI server on GPUs (EngineArgs.get_batch_defaults, CacheConfig).
UTILIZATION = 0.92
BLOCK_SIZE = 16
_SMALL_STEPS = (2048, 256)  # --max-num-batched-tokens, --max-num-seqs; A100 and GPUs below 70 GiB
_LARGE_STEPS = (8192, 1024)
_LARGE_GPUS = ("h100", "h200")

# What a GPU holds besides the layers' weights and the KV cache: token embeddings, activations, CUDA graphs,
# and the part of its memory that programs never see. Ours, from vLLM's logs for 7 to 13 billion parameters.
RESERVED = 3 * GIB

_MODELLED = {
    "max-num-batched-tokens",
    "max-num-seqs",
    "num-gpu-blocks-override",
    "kv-cache-memory-bytes",
    "watermark",
    "enable-prefix-caching",
    "no-enable-prefix-caching",
    "async-scheduling",
    "no-async-scheduling",
    "enable-chunked-prefill",
}
# Other numbers than those the cost models were fitted to; None: any value.
_OTHER_TIMES: dict[str, tuple[str, ...]] = {
    "quantization": (),
    "speculative-config": (),
    "kv-cache-dtype": ("auto", "bfloat16"),
    "dtype": ("auto", "bfloat16", "float16", "half"),
}


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica's engine, and what a reader should know of how it was derived."""

    settings: EngineSettings
    kv_source: str  # one line: where the number of KV blocks comes from
    notes: tuple[str, ...]  # what is not as in the service


def make_engine(service: LLMService, served: Served, profile: Profile) -> Engine:
    """Make the engine that vLLM would start for `service` on the profile's GPUs; raises UsageError."""
    spec = service.spec.engine
    options = engine_arguments.parse_arguments(spec.args)
    notes = _notes(service, served, profile, options)
    budget, seqs = default_steps(profile.gpu)
    budget = arguments.parse_whole_number(options, "max-num-batched-tokens") or budget
    longest = spec.max_model_len or served.longest or profile.max_context
    if longest is None:
        raise UsageError("spec.engine.maxModelLen: set it; the limit of this model is not known")
    block_size = spec.block_size or BLOCK_SIZE
    blocks, kv_source = _kv_blocks(service, profile, options, block_size)
    settings = EngineSettings(
        num_blocks=blocks,
        block_size=block_size,
        max_num_seqs=arguments.parse_whole_number(options, "max-num-seqs") or min(seqs, budget),
        max_num_batched_tokens=budget,
        async_scheduling=engine_arguments.is_switched_on(options, "async-scheduling", otherwise=True),
        max_model_len=longest,
        watermark=arguments.parse_share(options, "watermark", 0.0),
        prefix_caching=engine_arguments.is_switched_on(options, "enable-prefix-caching", otherwise=True),
    )
    if settings.max_num_seqs > settings.max_num_batched_tokens:
        raise UsageError(
            f"spec.engine.args: --max-num-seqs {settings.max_num_seqs} is more than "
            f"--max-num-batched-tokens {settings.max_num_batched_tokens}: vLLM refuses to start"
        )
    if blocks * block_size < longest:
        raise UsageError(
            f"spec.engine.maxModelLen: {longest} tokens are more than the KV cache holds "
            f"({blocks * block_size} tokens: {kv_source}): vLLM refuses to start; set a smaller maxModelLen"
        )
    return Engine(settings, kv_source, notes)


def default_steps(gpu: str) -> tuple[int, int]:
    """Return vLLM's own --max-num-batched-tokens and --max-num-seqs of a server on such a GPU."""
    return _LARGE_STEPS if gpu.lower() in _LARGE_GPUS else _SMALL_STEPS


def kv_room(profile: Profile, utilization: float) -> int:
    """Count the bytes that a replica's GPUs have for KV: memory x utilization less weights and `RESERVED`.

    Zero or less where the model does not fit.
    """
    per_token = catalog.find_shape(profile.model).kv_bytes_per_token
    tokens = catalog.kv_tokens(profile.model, profile.gpu, profile.tensor_parallel, utilization)
    return tokens * per_token - RESERVED * profile.tensor_parallel


def _kv_blocks(service: LLMService, profile: Profile, options: Options, block_size: int) -> tuple[int, str]:
    """Count the KV blocks of one replica, over all its GPUs together.

    tokens = (memory x utilization x GPUs - weights - reserve x GPUs) / KV bytes per token; the catalogue
    holds memory, weights (bf16) and KV bytes per token of the model.
    """
    given = arguments.parse_whole_number(options, "num-gpu-blocks-override")
    if given is not None:
        return given, "--num-gpu-blocks-override"
    per_token = catalog.find_shape(profile.model).kv_bytes_per_token
    gpus = profile.tensor_parallel
    memory = arguments.parse_whole_number(options, "kv-cache-memory-bytes")
    if memory is not None:  # per GPU, as vLLM takes it
        return memory * gpus // per_token // block_size, "--kv-cache-memory-bytes"
    percent = service.spec.engine.gpu_memory_utilization_percent
    utilization = percent / 100 if percent else UTILIZATION
    room = kv_room(profile, utilization)
    source = f"{utilization:.0%} of {_gpus(profile)} less the weights and {RESERVED // GIB} GiB per GPU"
    if room <= 0:
        raise UsageError(
            f"spec.engine: no memory is left for a KV cache ({source}); use more GPUs "
            "(tensorParallelSize) or a higher gpuMemoryUtilizationPercent"
        )
    return room // per_token // block_size, source


def _notes(service: LLMService, served: Served, profile: Profile, options: Options) -> tuple[str, ...]:
    notes = []
    if not service.on_gpu:
        notes.append(f"spec.accelerator.type is CPU; simulated as if each replica had {_gpus(profile)}")
    if served.told:
        notes.append(f"times are those of {profile.model}, for {service.spec.model.source}")
    others = [f"--{name}" for name in options if name not in _MODELLED and not _changes_times(name, options)]
    for name in filter(lambda option: _changes_times(option, options), options):
        given = f"--{name} {options[name] or ''}".rstrip()
        if not served.told:
            raise UsageError(
                f"spec.engine.args: {given}: no cost model fits, they are for bf16 without speculation; "
                f"with --model {served.name} it is simulated as if it were not there"
            )
        notes.append(f"not simulated: {given}")
    if others:
        notes.append(f"not simulated: {' '.join(others)}")
    return tuple(notes)


def _gpus(profile: Profile) -> str:
    return f"{profile.tensor_parallel} x {profile.gpu}"


def _changes_times(name: str, options: Options) -> bool:
    return name in _OTHER_TIMES and options[name] not in _OTHER_TIMES[name]
