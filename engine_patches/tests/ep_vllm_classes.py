"""vLLM's own classes under the names of the adapter's protocols: what mypy reads instead of `vllm_types`."""

from vllm.config import ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.multimodal.inputs import MultiModalFeatureSpec as MultiModalFeature
from vllm.multimodal.inputs import PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import KVCacheBlock
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler as VllmScheduler
from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request as VllmRequest

__all__ = [
    "BlockPool",
    "CachedRequestData",
    "EngineCoreOutput",
    "EngineCoreOutputs",
    "FinishReason",
    "KVCacheBlock",
    "KVCacheCoordinator",
    "KVCacheManager",
    "ModelConfig",
    "ModelRunnerOutput",
    "MultiModalFeature",
    "NewRequestData",
    "ParallelConfig",
    "PlaceholderRange",
    "SamplingParams",
    "SchedulerConfig",
    "SchedulerOutput",
    "SingleTypeKVCacheManager",
    "VllmConfig",
    "VllmRequest",
    "VllmScheduler",
]
