"""The parts of vLLM's objects that the adapter uses, as protocols; nothing here imports vLLM.

They double as the list of what a supported vLLM must have: `compat` looks up every attribute and method of
`VllmScheduler` when an engine starts. What only some versions or models have is read with `getattr` instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from headrace_engine.policies.engine_view import RequestView


class SamplingParams(Protocol):
    """What the client asked of the sampler."""

    extra_args: Mapping[str, object] | None
    stop: Sequence[str] | None


class PlaceholderRange(Protocol):
    """Where a picture or the like stands in the prompt."""

    offset: int
    length: int


class MultiModalFeature(Protocol):
    """A picture or the like."""

    identifier: str
    mm_position: PlaceholderRange


class FinishReason(Protocol):
    """Why a request ended."""

    name: str


class VllmRequest(RequestView, Protocol):
    """vLLM's `Request`."""

    sampling_params: SamplingParams | None
    prompt_token_ids: Sequence[int] | None
    block_hashes: Sequence[bytes]
    mm_features: Sequence[MultiModalFeature]
    has_encoder_inputs: bool
    lora_request: object | None
    client_index: int
    status: object
    next_decode_eligible_step: int  # the first scheduler step that may give it a token
    skip_reading_prefix_cache: bool

    def is_finished(self) -> bool:
        """Tell whether the request has ended."""

    def get_finished_reason(self) -> FinishReason | None:
        """Return why it ended; None while it has not."""

    def get_num_encoder_embeds(self, input_id: int) -> int:
        """Return the tokens that encoders yield for one of its `mm_features`."""


class NewRequestData(Protocol):
    """A request's first step, or its first after a preemption."""

    req_id: str
    num_computed_tokens: int


class CachedRequestData(Protocol):
    """Requests that workers know already, as parallel lists."""

    req_ids: list[str]
    num_computed_tokens: Sequence[int]
    resumed_req_ids: set[str]  # of them, those that were preempted before


class SchedulerOutput(Protocol):
    """A step as vLLM planned it."""

    scheduled_new_reqs: Sequence[NewRequestData]
    scheduled_cached_reqs: CachedRequestData
    num_scheduled_tokens: dict[str, int]
    total_num_scheduled_tokens: int
    scheduled_spec_decode_tokens: Mapping[str, Sequence[int]]
    scheduled_encoder_inputs: Mapping[str, Sequence[int]]
    preempted_req_ids: Collection[str] | None


class ModelRunnerOutput(Protocol):
    """What a step sampled."""

    sampled_token_ids: Sequence[Sequence[int]]
    req_id_to_index: Mapping[str, int]


class EngineCoreOutput(Protocol):
    """The tokens of one request that go to its client."""

    request_id: str
    new_token_ids: Sequence[int]
    finish_reason: object | None


class EngineCoreOutputs(Protocol):
    """The tokens that go to one API server."""

    outputs: Sequence[EngineCoreOutput]


class KVCacheBlock(Protocol):
    """One KV block."""

    ref_cnt: int


class BlockPool(Protocol):
    """All KV blocks."""

    num_gpu_blocks: int
    hash_block_size: int  # tokens

    def get_num_free_blocks(self) -> int:
        """Return how many blocks nobody holds."""

    def get_cached_block(self, block_hash: bytes, group_ids: list[int]) -> list[KVCacheBlock] | None:
        """Return the block of this content in each group of layers; None if one lacks it."""


class SingleTypeKVCacheManager(Protocol):
    """Looks after the KV of one group of layers."""

    block_size: int
    kv_cache_group_id: int
    req_to_blocks: Mapping[str, Sequence[KVCacheBlock]]
    kv_cache_spec: object


class KVCacheCoordinator(Protocol):
    """Looks after all groups of layers."""

    single_type_managers: Sequence[SingleTypeKVCacheManager]
    eagle_group_ids: Collection[int]

    def find_longest_cache_hit(
        self, block_hashes: Sequence[bytes], max_cache_hit_length: int
    ) -> tuple[Sequence[Sequence[KVCacheBlock]], int]:
        """Return each group's cached blocks and how many tokens they hold; some versions add more."""


class KVCacheManager(Protocol):
    """Hands out KV blocks."""

    block_pool: BlockPool
    coordinator: KVCacheCoordinator
    enable_caching: bool


class SchedulerConfig(Protocol):
    """The scheduler's settings."""

    policy: str
    enable_chunked_prefill: bool
    disable_chunked_mm_input: bool


class ModelConfig(Protocol):
    """The model's settings."""

    max_model_len: int


class ParallelConfig(Protocol):
    """How the model is spread over GPUs."""

    data_parallel_size: int
    data_parallel_index: int


class VllmConfig(Protocol):
    """vLLM's settings."""

    scheduler_config: SchedulerConfig
    model_config: ModelConfig
    parallel_config: ParallelConfig


class VllmScheduler(Protocol):
    """vLLM's `Scheduler`."""

    block_size: int
    connector: object | None
    current_step: int
    encoder_cache_manager: object
    is_encoder_decoder: bool
    kv_cache_manager: KVCacheManager
    lora_config: object | None
    max_num_running_reqs: int
    max_num_scheduled_tokens: int
    need_mamba_block_aligned_split: bool
    num_spec_tokens: int
    prev_step_scheduled_req_ids: set[str]
    requests: dict[str, VllmRequest]
    requires_kv_delivery: bool
    running: list[VllmRequest]
    scheduler_config: SchedulerConfig
    waiting: Collection[VllmRequest]
    _inflight_prefills: Collection[VllmRequest]
    _pause_state: object

    def add_request(self, request: VllmRequest) -> None:
        """Take in a request and put it into the queue."""

    def finish_requests(self, request_ids: str, finished_status: object) -> object:
        """End requests from outside."""

    def get_request_counts(self) -> tuple[int, int]:
        """Return how many requests run and wait."""

    def schedule(self) -> SchedulerOutput:
        """Plan a step: who gets how many tokens."""

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> object:
        """Return what restricts the next tokens of a step, once the device has begun to compute it."""

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Take in what a step sampled; return it by client."""

    def shutdown(self) -> None:
        """Release everything that the scheduler holds."""

    def _free_request(self, request: VllmRequest) -> object:
        """Forget a request that has ended."""

    def _inflight_prefill_reserved_blocks(self) -> int:
        """Return the KV blocks that running requests still need to finish their prefill."""

    def _preempt_request(self, request: VllmRequest, timestamp: float, *, drop_stale_output: bool) -> None:
        """Take a running request's KV and put it back into the queue."""

    def _request_blocks_can_be_freed(self, request: VllmRequest) -> bool:
        """Tell whether no step in flight still writes its KV."""

    def _reserve_prefill_lookahead(
        self, request: VllmRequest, num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        """Return how many tokens of a chunk of `num_new_tokens` the step may compute."""
