"""What is run: devices with their models, workloads, contestants, and the order in which they take turns.

A contestant is stock vLLM or a policy of ours. All get the same requests at the same times. A run is one
contestant at one load of one workload, in one repetition; each repetition has other times and another order
of the same requests.
"""

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from e2e.data import recorded
from headrace_engine.contracts import PolicyDocument, Slo, StepBudget
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads import shape
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.sim.workloads.shape import Scale

DEFAULT, TUNED = "default", "tuned"
POLICIES: Mapping[str, str] = {"larry": "LARRY", "econoserve": "EconoServe", "accelgen": "AccelGen"}
CONTESTANTS = (DEFAULT, TUNED, *POLICIES)
FIXED_BUDGETS = (TUNED, "larry", "econoserve")  # whose step budget is searched; AccelGen derives its own
WATERMARKS = (0.0, 0.02, 0.05, 0.1)  # where KV binds
OUTPUT_WEIGHT = 4.0  # of an output token against a prompt token, where requests are sorted by size
CODE, CONVERSATION, KV = "code", "conversation", "kv"
BURSTY, POISSON = 3.0, 1.0  # coefficients of variation of the gaps between arrivals
WARM_UP = 0.2  # share of a run's time


@dataclass(frozen=True, slots=True)
class Workload:
    """Recorded lengths, how they are scaled, and how the gaps between arrivals vary."""

    name: str
    scale: Scale
    variation: float
    blocks: int  # KV blocks of its servers
    seconds: float  # of arrivals in a run
    e2e_scale: float  # the target: end to end within so many times what the request takes alone
    warm_step_tokens: int = 0  # steps up to this size are all made once before anything is measured
    watermarks: tuple[float, ...] = (0.0,)  # shares of KV blocks kept free at admission, searched for stock

    @property
    def warm_up(self) -> float:
        """Seconds from a run's start whose requests are not counted."""
        return WARM_UP * self.seconds

    def pool(self, count: int) -> list[Arrival]:
        """Take `count` requests, evenly over all when sorted by size: any number has about the same mean."""
        every = _recorded(self.name, self.scale)
        return [every[int((number + 0.5) * len(every) / count)] for number in range(count)]

    def arrivals(self, rate: float, seed: int) -> list[Arrival]:
        """Make a run's requests at a mean of `rate` a second; each seed has the same ones, at other times."""
        count = max(2, round(rate * self.seconds))
        return shape.draw_renewal(self.pool(count), count, rate, seed, self.variation)


@functools.cache
def _recorded(workload: str, scale: Scale) -> Sequence[Arrival]:
    lengths = {CODE: recorded.azure_code, CONVERSATION: recorded.azure_conversation}
    return sorted(map(scale, lengths.get(workload, recorded.sharegpt)()), key=_size)


def _size(request: Arrival) -> tuple[float, int]:
    return request.prompt_tokens + OUTPUT_WEIGHT * request.output_tokens, request.prompt_tokens


@dataclass(frozen=True, slots=True)
class Device:
    """Where engines run: the model that is large enough for it, and how much is measured."""

    name: str
    model: Mapping[str, Any]  # of its config.json
    settings: EngineSettings  # KV blocks are the workload's, and vLLM's defaults `with_defaults`'
    arguments: tuple[str, ...]  # of vLLM, beside those of the settings
    environment: Mapping[str, str]
    budgets: tuple[int, ...]  # tokens a step, searched
    workloads: tuple[Workload, ...]
    clients: int  # of a closed loop, at most
    loads: tuple[float, ...] = (0.7, 0.9, 1.1)  # of measured capacity
    repetitions: int = 5
    calibration: float = 4.0  # seconds of each phase
    capacity: float = 12.0  # seconds of each closed loop that measures it
    pinned: bool = False  # engine on one core, clients on another


_LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16"}
_CPU = Device(
    "cpu",
    model={
        **_LLAMA,
        "vocab_size": 2048,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 8,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "max_position_embeddings": 2048,
    },
    settings=EngineSettings(block_size=32, max_model_len=1024, prefix_caching=True),
    arguments=("--enforce-eager",),
    environment={
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # one thread, on the core that we give it
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "3072",  # kernels of 512 sizes of steps, 2 MB each, and some more
    },
    budgets=(32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 512, 1024, 2048),
    workloads=(
        Workload(
            CODE,
            Scale(16, 4, 1024, 1024),
            BURSTY,
            blocks=512,
            seconds=12.0,
            e2e_scale=10.0,
            warm_step_tokens=512,
        ),
        Workload(
            KV,
            Scale(16, 3, 1024, 1024),
            POISSON,
            blocks=40,
            seconds=16.0,
            e2e_scale=5.0,
            warm_step_tokens=256,
            watermarks=WATERMARKS,
        ),
        Workload(
            CONVERSATION,
            Scale(16, 4, 1024, 1024),
            POISSON,
            blocks=512,
            seconds=12.0,
            e2e_scale=5.0,
            warm_step_tokens=512,
        ),
    ),
    clients=32,
    pinned=True,
)
_CUDA = Device(
    "cuda",
    model={
        **_LLAMA,
        "vocab_size": 128_256,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
    },
    settings=EngineSettings(
        block_size=16,
        max_model_len=8192,
        prefix_caching=True,
        async_scheduling=True,
    ),
    arguments=("--gpu-memory-utilization=0.3",),
    environment={},
    budgets=(512, 768, 1024, 1536, 2048, 3072, 4096, 8192),
    workloads=(
        Workload(CODE, Scale(1, 1, 7168, 1024), BURSTY, blocks=8192, seconds=5.0, e2e_scale=10.0),
        Workload(CONVERSATION, Scale(1, 1, 7168, 1024), POISSON, blocks=8192, seconds=5.0, e2e_scale=5.0),
        Workload(
            KV,
            Scale(1, 1, 7168, 1024),
            POISSON,
            blocks=1536,
            seconds=6.0,
            e2e_scale=5.0,
            watermarks=WATERMARKS,
        ),
    ),
    clients=256,
    loads=(0.9,),
    calibration=2.0,
    capacity=5.0,
)
DEVICES = {device.name: device for device in (_CPU, _CUDA)}


def with_defaults(device: Device) -> Device:
    """Set how many tokens and requests a step of vLLM's server has here if nobody says otherwise."""
    from vllm.engine.arg_utils import EngineArgs  # noqa: PLC0415  it takes ten seconds to import
    from vllm.usage.usage_lib import UsageContext  # noqa: PLC0415

    tokens, requests = (each[UsageContext.OPENAI_API_SERVER] for each in EngineArgs.get_batch_defaults(1))
    settings = replace(device.settings, max_num_batched_tokens=tokens, max_num_seqs=requests)
    return replace(device, settings=settings)


@dataclass(frozen=True, slots=True)
class Run:
    """One contestant serves the requests of one repetition."""

    workload: str
    load: float  # of measured capacity
    repetition: int
    contestant: str


def plan(device: Device, workload: str) -> list[Run]:
    """List the runs of a workload: all of a repetition before the next, each in an order of its own."""
    return [run for number in range(device.repetitions) for run in _shuffled(device, workload, number)]


def _shuffled(device: Device, workload: str, repetition: int) -> list[Run]:
    chance = random.Random(f"order {workload} {repetition}")
    loads = chance.sample(device.loads, len(device.loads))
    return [
        Run(workload, load, repetition, contestant)
        for load in loads
        for contestant in chance.sample(CONTESTANTS, len(CONTESTANTS))
    ]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One of CONTESTANTS and its settings. `budget`: tokens a step; None is vLLM's own, or the policy's."""

    name: str
    budget: int | None = None
    watermark: float = 0.0

    def document(self, workload: Workload) -> PolicyDocument | None:
        """Make what the plugin is told; None for stock vLLM."""
        if self.name not in POLICIES:
            return None
        steps = StepBudget("SLO") if self.budget is None else StepBudget("Fixed", self.budget)
        slo = Slo(e2e_scale_percent=round(100 * workload.e2e_scale))
        return PolicyDocument(POLICIES[self.name], step_budget=steps, slo=slo)


def tail(load: float) -> str:
    """Write a load as it is in names of figures: `09`."""
    return f"{round(load * 10):02d}"


def named(workloads: Sequence[Workload], name: str) -> Workload:
    """Find a workload by its name."""
    return next(each for each in workloads if each.name == name)
