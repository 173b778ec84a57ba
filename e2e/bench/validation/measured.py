"""Measured vLLM runs of LLMServingSim, and the simulation of the same requests on the same settings.

What the settings are, and where they are known from:

- `max_num_seqs` 128 or 256 and a budget of 2048 tokens: `engine_kwargs` in `meta.json`. Asynchronous
  scheduling and prefix caching: `resolved_config` of the RTX 4090 run; vLLM 0.19 has both on where
  nothing is said, as in the two others. Prompts are taken as sharing no prefix; a preempted request may
  find its own blocks again.
- KV blocks: recorded for the RTX 4090. For the others nothing is recorded and nothing needs to be. Memory
  times 0.9 less the weights holds more than 500,000 tokens (8B on 96 GB) and 390,000 (32B on 2 x 96 GB); 128
  requests of the mean length, all at their end, are 194,000. In the timeseries as many run as `max_num_seqs`
  allows while others wait, and the number running never falls as it does when some are preempted.
- CUDA graphs pad steps to the sizes recorded in the RTX 4090 run, which are vLLM's defaults.
- Time: operator tables of the same GPU, composed by `headrace_engine.cost.tables`. No time for the host
  and no other constant is added, and none is fitted to the run.
- Arrivals are the front end's; a request reaches the scheduler when a step ends, which the simulation
  does as well. The two clocks of a run are joined where the least time lies between arrival and queueing.
- Qwen3-32B ran on two GPUs, the tables are of one. Each GPU is given half of every operator, and each
  layer two all-reduces over the link that the authors describe in `config.json` (our reading; it is the
  least sure).
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace_engine.cost import tables
from headrace_engine.cost.model import Batch, CostModel, Profile
from headrace_engine.sim.run import Run, simulate
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival

DATA = Path(__file__).parents[2] / "data" / "validation"
CAPTURED = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))
AMPLE_BLOCKS = 30_000  # 480,000 tokens, of which no run here uses half


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each request, in order of arrival: to the first token, mean between tokens, to the last."""

    ttft: Sequence[float]
    tpot: Sequence[float]
    e2e: Sequence[float]


@dataclass(frozen=True, slots=True)
class Machine:
    """One recorded run: `folder` in the data, and what its files do not say."""

    folder: str
    title: str
    layers: int
    gpus: int = 1
    hidden: int = 0  # activations per token that GPUs exchange


PRO6000_8B = Machine("rtxpro6000_llama-3.1-8b", "Llama-3.1-8B, RTX PRO 6000", 32)
QWEN3_32B = Machine("rtxpro6000_qwen3-32b", "Qwen3-32B, 2 x RTX PRO 6000", 64, gpus=2, hidden=5120)
RTX4090_8B = Machine("rtx4090_llama-3.1-8b", "Llama-3.1-8B, RTX 4090", 32)


@dataclass(frozen=True, slots=True)
class Shared:
    """A model split over GPUs: each does its share of every operator, and two all-reduces join each layer."""

    cost: CostModel
    profile: Profile
    gpus: int
    exchanges: int  # all-reduces per step
    token_seconds: float  # on the link, for one token's activations
    latency: float  # seconds of one message

    def step_seconds(self, batch: Batch) -> float:
        """Return the seconds of one step; a ring sends everything 2 (n-1)/n times, in 2 (n-1) messages."""
        rounds = 2 * (self.gpus - 1)
        tokens = batch.prefill_tokens + batch.decodes
        exchange = rounds * (self.latency + tokens * self.token_seconds / self.gpus)
        return self.cost.step_seconds(batch) / self.gpus + self.exchanges * exchange

    def attention_seconds(self, batch: Batch) -> float:
        """Return the share of the seconds that grows with W and S."""
        return self.cost.attention_seconds(batch) / self.gpus


def cost_of(machine: Machine) -> CostModel:
    """Compose the cost model of a recorded run's GPUs."""
    folder, meta = DATA / machine.folder, _meta(machine)
    source = "operator tables of LLMServingSim at 5daddb21 (MIT)"
    profile = Profile(meta["model"], machine.title, machine.gpus, f"vLLM {meta['vllm_version']}", source)
    cost = tables.load_tables(folder, profile, machine.layers, CAPTURED)
    if machine.gpus == 1:
        return cost
    network = json.loads((folder / "config.json").read_text())
    seconds = machine.hidden * 2 / (network["link_bw"] * 1e9)  # GB/s; activations are bf16
    return Shared(cost, profile, machine.gpus, 2 * machine.layers, seconds, network["link_latency"] * 1e-9)


def settings_of(machine: Machine) -> EngineSettings:
    """Return the engine's settings, as recorded."""
    meta = _meta(machine)
    asked = meta["engine_kwargs"]
    return EngineSettings(
        num_blocks=meta.get("kv_cache", {}).get("num_gpu_blocks", AMPLE_BLOCKS),
        max_num_seqs=asked["max_num_seqs"],
        max_num_batched_tokens=asked["max_num_batched_tokens"],
        max_model_len=32_768,
        async_scheduling=True,
        prefix_caching=True,
    )


def arrivals(machine: Machine) -> list[Arrival]:
    """Return the recorded requests; the first arrives at 0."""
    rows = _requests(machine)
    first = rows[0]["arrival_time"]
    return [Arrival(row["arrival_time"] - first, row["input_toks"], row["output_toks"]) for row in rows]


def recorded(machine: Machine) -> Times:
    """Return what was measured; KeyError for a run whose times were not published."""
    rows = _requests(machine)
    join = min(row["queued_ts"] - row["arrival_time"] for row in rows)
    return Times(
        [row["first_token_ts"] - row["arrival_time"] - join for row in rows],
        [(row["last_token_ts"] - row["first_token_ts"]) / (row["output_toks"] - 1) for row in rows],
        [row["last_token_ts"] - row["arrival_time"] - join for row in rows],
    )


def simulated(machine: Machine) -> Run:
    """Serve the same requests with stock vLLM's scheduler."""
    return simulate(arrivals(machine), settings_of(machine), cost_of(machine))


def times(run: Run) -> Times:
    """Return the times of a simulated run; all its requests have finished."""
    return Times(
        [outcome.ttft or 0.0 for outcome in run.outcomes],
        [outcome.tpot or 0.0 for outcome in run.outcomes],
        [outcome.e2e or 0.0 for outcome in run.outcomes],
    )


def _meta(machine: Machine) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DATA / machine.folder / "meta.json").read_text())
    return document


def _requests(machine: Machine) -> list[dict[str, Any]]:
    packed = (DATA / machine.folder / "requests.jsonl.gz").read_bytes()
    return [json.loads(line) for line in gzip.decompress(packed).splitlines()]
