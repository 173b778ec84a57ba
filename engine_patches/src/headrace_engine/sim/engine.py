"""vLLM's engine loop on a virtual clock: real scheduler, real KV cache manager, a model that is only a cost.

A step takes as long as `StepCost` says and yields one token for each request that is not in the middle of its
prefill. With asynchronous scheduling the next step is planned before the last one's tokens are known, as
vLLM's own loop does (two steps in flight).
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from headrace_engine.adapter.link import Link
from headrace_engine.adapter.scheduler import scheduler_class
from headrace_engine.sim.clock import VirtualClock

StepCost = Callable[[Any], float]
"""Seconds of a step, from its `SchedulerOutput`."""

ANY_TOKEN = 7

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """vLLM's settings that matter to its scheduler; the names are vLLM's."""

    num_blocks: int = 1024
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    async_scheduling: bool = False


def flat_cost(output: Any) -> float:
    """A plausible step: a fixed part, and one for each token."""
    return 0.005 + 0.00005 * float(output.total_num_scheduled_tokens)


def make_scheduler(settings: EngineSettings, link: Link | None) -> Any:
    """A scheduler as vLLM's EngineCore makes it; stock if there is no link."""
    config = _vllm_config(settings)
    stock = AsyncScheduler if settings.async_scheduling else Scheduler
    kind = stock if link is None else scheduler_class(stock, link)
    spec = FullAttentionSpec(
        block_size=settings.block_size, num_kv_heads=8, head_size=128, dtype=torch.bfloat16
    )
    return kind(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(settings.num_blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
        structured_output_manager=StructuredOutputManager(config),
        block_size=settings.block_size,
        hash_block_size=settings.block_size,
        log_stats=False,
    )


def make_request(name: str, prompt_tokens: int, output_tokens: int, arrival: float, **extra: Any) -> Any:
    """A vLLM request that produces exactly `output_tokens`; `arrival` in unix seconds."""
    return Request(
        request_id=name,
        prompt_token_ids=[1] * prompt_tokens,
        sampling_params=SamplingParams(max_tokens=output_tokens, ignore_eos=True),
        pooling_params=None,
        arrival_time=arrival,
        **extra,
    )


@dataclass(slots=True)
class VirtualEngine:
    """One engine; `finished` maps request ids to the virtual time of their last token."""

    scheduler: Any
    clock: VirtualClock
    cost: StepCost = flat_cost
    depth: int = 1  # steps in flight
    steps: int = 0
    preemptions: int = 0
    finished: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    before_step: Callable[[], None] = lambda: None
    _in_flight: deque[tuple[Any, dict[str, bool]]] = field(default_factory=deque)

    def run(self, requests: Iterable[Any]) -> None:
        """Serve `requests`, sorted by arrival, until all are done."""
        arriving = deque(requests)
        while arriving or self._in_flight or self.scheduler.has_requests():
            while arriving and arriving[0].arrival_time <= self.clock.now:
                self.scheduler.add_request(arriving.popleft())
            if self._in_flight or self.scheduler.has_requests():
                self.turn()
            else:
                self.clock.now = arriving[0].arrival_time

    def turn(self) -> None:
        """Plan one step; take in the oldest in flight unless there is room for another."""
        if self.scheduler.has_requests():
            self.before_step()
            output = self.scheduler.schedule()
            self.steps += 1
            self.preemptions += len(output.preempted_req_ids or ())
            requests = self.scheduler.requests
            sampled = {i: not requests[i].is_prefill_chunk for i in output.num_scheduled_tokens}
            self._in_flight.append((output, sampled))
            if sampled and len(self._in_flight) < self.depth:
                return
        self._deliver()

    def _deliver(self) -> None:
        output, sampled = self._in_flight.popleft()
        self.clock.now += self.cost(output)
        ids = list(sampled)
        results = self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
                sampled_token_ids=[[ANY_TOKEN] if sampled[request_id] else [] for request_id in ids],
            ),
        )
        for result in results.values():
            for item in result.outputs:
                self.tokens.setdefault(item.request_id, []).extend(item.new_token_ids)
                if item.finish_reason is not None:
                    self.finished[item.request_id] = self.clock.now


@functools.cache  # a second or so each, and no scheduler changes it
def _vllm_config(settings: EngineSettings) -> VllmConfig:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL))
        longest = int(str(MODEL["max_position_embeddings"]))
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
            ),
            cache_config=CacheConfig(block_size=settings.block_size, enable_prefix_caching=False),
            parallel_config=ParallelConfig(),
            device_config=DeviceConfig("cpu"),
        )
    # On CPU vLLM switches it off whatever is asked, since its worker there can't; the scheduler can.
    config.scheduler_config.async_scheduling = settings.async_scheduling
    config.cache_config.num_gpu_blocks = settings.num_blocks
    return config
