"""vLLM's own scheduler and requests, made as its EngineCore makes them, without model or worker."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from headrace_engine.adapter.control_link import ControlLink
from headrace_engine.adapter.policy_scheduler import PolicyScheduler, derive_scheduler
from headrace_engine.contracts.resume_arguments import HAND_BACK
from headrace_engine.policies.engine_view import NO_TARGETS
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.shortcuts import QuickAsyncScheduler, QuickScheduler, TextRequest
from headrace_engine.sim.workloads.arrival import Arrival

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
"""Any with one kind of attention will do: the scheduler sees blocks and lengths, time is the cost model's."""


def make_scheduler(settings: EngineSettings, link: ControlLink | None, *, quick: bool = False) -> Any:
    """Make a scheduler as vLLM's EngineCore does; stock if there is no link, with shortcuts if `quick`."""
    shared = _shared(settings)
    if quick:
        kind: type = QuickAsyncScheduler if settings.async_scheduling else QuickScheduler
        if link is not None:
            kind = type(f"Headrace{kind.__name__}", (PolicyScheduler, kind), {"link": link})
    else:
        kind = AsyncScheduler if settings.async_scheduling else Scheduler
        if link is not None:
            kind = derive_scheduler(kind, link)
    spec = FullAttentionSpec(
        block_size=settings.block_size, num_kv_heads=8, head_size=128, dtype=torch.bfloat16
    )
    return kind(
        vllm_config=shared.config,
        kv_cache_config=KVCacheConfig(settings.num_blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
        structured_output_manager=shared.structured_output,
        block_size=settings.block_size,
        hash_block_size=settings.block_size,
        log_stats=False,
    )


@functools.lru_cache(65_536)
def _sampling(output_tokens: int, overrides: tuple[tuple[str, float], ...] = ()) -> SamplingParams:
    return SamplingParams(max_tokens=output_tokens, ignore_eos=True, extra_args=dict(overrides) or None)


def _overrides(arrival: Arrival) -> tuple[tuple[str, float], ...]:
    """Return what the client sends as `vllm_xargs`."""
    if arrival.hint is None and arrival.targets is NO_TARGETS:
        return ()
    given = {f"headrace_{kind}_ms": getattr(arrival.targets, kind) for kind in ("ttft", "tpot", "e2e")}
    overrides = [(key, seconds * 1000) for key, seconds in given.items() if seconds is not None]
    if arrival.hint is not None:
        overrides.append(("headrace_output_tokens", arrival.hint))
    return tuple(overrides)


def text_request(
    name: str,
    arrival: Arrival,
    at: float,
    block_hasher: Callable[[Any], list[bytes]] | None,
    *,
    movable: bool = False,
) -> TextRequest:
    """Make a request like `make_request`, for schedulers with shortcuts. `movable`: it may be handed back."""
    arguments = _overrides(arrival)
    if movable:  # as the gateway's relay asks
        arguments = (*arguments, (HAND_BACK, 1))
    return TextRequest(
        request_id=name,
        prompt_token_ids=[1] * arrival.prompt_tokens,
        sampling_params=_sampling(arrival.output_tokens, arguments),
        pooling_params=None,
        arrival_time=at,
        block_hasher=block_hasher,
    )


def make_request(name: str, prompt_tokens: int, output_tokens: int, arrival: float, **extra: Any) -> Any:
    """Make a vLLM request that produces exactly `output_tokens`; `arrival` on the engine's clock, seconds."""
    return Request(
        request_id=name,
        prompt_token_ids=[1] * prompt_tokens,
        sampling_params=SamplingParams(max_tokens=output_tokens, ignore_eos=True),
        pooling_params=None,
        arrival_time=arrival,
        **extra,
    )


@dataclass(frozen=True, slots=True)
class _Shared:
    config: VllmConfig
    structured_output: StructuredOutputManager


@functools.cache  # a second or so each, and no scheduler changes it
def _shared(settings: EngineSettings) -> _Shared:
    longest = settings.max_model_len
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL | {"max_position_embeddings": longest}))
        config = VllmConfig(
            model_config=ModelConfig(
                model=folder,
                tokenizer=folder,
                skip_tokenizer_init=True,
                dtype="float16",
                seed=0,
                max_model_len=longest,
            ),
            scheduler_config=SchedulerConfig(
                max_num_seqs=settings.max_num_seqs,
                max_num_batched_tokens=settings.max_num_batched_tokens,
                max_model_len=longest,
                is_encoder_decoder=False,
                enable_chunked_prefill=True,
                watermark=settings.watermark,
            ),
            cache_config=CacheConfig(
                block_size=settings.block_size, enable_prefix_caching=settings.prefix_caching
            ),
            parallel_config=ParallelConfig(),
            device_config=DeviceConfig("cpu"),
        )
    # On CPU vLLM switches both off whatever is asked, since its worker there can't; the scheduler can.
    config.scheduler_config.async_scheduling = settings.async_scheduling
    config.cache_config.enable_prefix_caching = settings.prefix_caching
    config.cache_config.num_gpu_blocks = settings.num_blocks
    return _Shared(config, StructuredOutputManager(config))
