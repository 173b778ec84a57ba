"""Does the sidecar's live fit predict steps it has not seen? `python -m e2e.bench.live_fit`, two minutes.

A real vLLM engine on the CPU, with the plugin, serves prompts and answers of varied lengths to few and many
clients. The estimators of the sidecar learn from the engine's ring of step samples. Then comes another load,
with other lengths and clients, from which nothing is learned: each of its steps is predicted and compared.
Writes live_fit.json. The error is that of single steps, whose times vary with what else the machine does.
"""

import asyncio
import json
import random
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from e2e.bench.real_engine import vllm_server
from e2e.bench.real_engine.vllm_server import Server
from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from headrace_engine.contracts import PolicyDocument
from headrace_engine.control import paths
from headrace_engine.control.records import STEPS, StepSample
from headrace_engine.control.ring import RingReader
from headrace_engine.cost.model import Batch, CostModel
from headrace_sidecar.estimates import Estimates

COMMAND = "python -m e2e.bench.live_fit"
WIDER = {  # than the demo's model, so that steps take milliseconds by what they compute
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
}
ANSWER_WITHIN = 300.0
POLL = 0.1  # seconds between two readings of the ring


@dataclass(frozen=True, slots=True)
class Load:
    """So many clients at a time, each phase `seconds` long; lengths are the means of exponentials, in tokens.

    A client asks again when it is answered, so that the engine is busy but never overrun, however fast it is.
    """

    seed: int
    clients: tuple[int, ...]
    seconds: float
    prompt_tokens: float
    output_tokens: float


WARM_UP = Load(seed=0, clients=(4,), seconds=3, prompt_tokens=200, output_tokens=20)
LEARNED = Load(seed=1, clients=(2, 16, 6, 1), seconds=8, prompt_tokens=250, output_tokens=25)
HELD_OUT = Load(seed=2, clients=(1, 4, 10), seconds=8, prompt_tokens=150, output_tokens=40)


def main() -> None:
    """Read the command line, and measure."""
    describe(__doc__).parse_args()
    asyncio.run(measure())


async def measure() -> None:
    """Run the engine, learn from one load, predict the other, and write the figures."""
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder, engine(Path(folder)) as served:
        ring = RingReader(paths.stats_paths(served.shared).steps, STEPS)
        timeout = aiohttp.ClientTimeout(total=ANSWER_WITHIN)
        async with aiohttp.ClientSession(served.url, timeout=timeout) as session:
            await steps_of(session, ring, WARM_UP)
            learned = await steps_of(session, ring, LEARNED)
            unseen = await steps_of(session, ring, HELD_OUT)
        ring.close()
    estimates = Estimates()
    estimates.add_steps(learned)
    cost = estimates.cost()
    if cost is None:
        raise SystemExit("too few prefills were seen to fit a cost model")
    figures = figures_of(cost, learned, unseen)
    results.write("live_fit", COMMAND, figures)
    print(cost)
    print(json.dumps(figures, indent=2))


def figures_of(
    cost: CostModel, learned: Sequence[StepSample], unseen: Sequence[StepSample]
) -> dict[str, float]:
    """Return errors of the fit on steps it has not seen, beside those of predicting the learned mean."""
    times = [sample.seconds for sample in unseen]
    predicted = [cost.step_seconds(batch(sample)) for sample in unseen]
    errors = [abs(ours / time - 1) for ours, time in zip(predicted, times, strict=True)]
    mean = statistics.fmean(sample.seconds for sample in learned)
    left = sum((ours - time) ** 2 for ours, time in zip(predicted, times, strict=True))
    whole = statistics.pvariance(times) * len(times)
    return {
        "step_time_mape_percent": round(100 * statistics.fmean(errors), 2),
        "step_time_median_ape_percent": round(100 * statistics.median(errors), 2),
        "total_time_error_percent": round(100 * (sum(predicted) / sum(times) - 1), 2),
        "r2": round(1 - left / whole, 4),
        "mean_predictor_mape_percent": round(
            100 * statistics.fmean(abs(mean / time - 1) for time in times), 2
        ),
        "steps_learned": len(learned),
        "steps_predicted": len(unseen),
        "steps_predicted_with_prefill": sum(sample.prefill_tokens > 0 for sample in unseen),
    }


def batch(sample: StepSample) -> Batch:
    """Return what a sampled step computed."""
    return Batch(sample.prefill_tokens, sample.prefill_work, sample.decodes, sample.decode_context)


async def steps_of(
    session: aiohttp.ClientSession, ring: RingReader[StepSample], load: Load
) -> list[StepSample]:
    """Keep the clients asking and wait for the last answers; the steps that the engine took for them."""
    steps: list[StepSample] = []
    ring.drain()
    source = random.Random(load.seed)
    for clients in load.clients:
        until = asyncio.get_running_loop().time() + load.seconds
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client(session, load, source, until)) for _ in range(clients)]
            while not all(task.done() for task in tasks):
                await asyncio.sleep(POLL)
                steps += ring.drain()
    await asyncio.sleep(POLL)
    return steps + ring.drain()


async def client(session: aiohttp.ClientSession, load: Load, source: random.Random, until: float) -> None:
    """Ask and wait for the answer, over and over until loop time `until`."""
    while asyncio.get_running_loop().time() < until:
        tokens = min(1500, 2 + int(source.expovariate(1 / load.prompt_tokens)))
        output = min(120, 1 + int(source.expovariate(1 / load.output_tokens)))
        prompt = [source.randrange(256) for _ in range(tokens)]
        body = {"model": "wide", "prompt": prompt, "max_tokens": output, "ignore_eos": True}
        async with session.post("/v1/completions", json=body) as response:
            response.raise_for_status()
            await response.read()


@contextmanager
def engine(folder: Path) -> Iterator[Server]:
    """Run vLLM with the plugin, as a pod does."""
    weights = folder / "model"
    vllm_server.write_model(weights, WIDER)
    arguments = [
        *("--dtype=float32", "--enforce-eager", "--max-model-len=2048", "--max-num-seqs=32"),
        *("--max-num-batched-tokens=512", "--no-enable-prefix-caching"),
    ]
    environment = {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",  # several would wait for each other whenever clients need a core
        "VLLM_CPU_KVCACHE_SPACE": "1",
    }
    policy = PolicyDocument(policy="FCFS")
    made = vllm_server.start(folder / "engine", weights, "wide", arguments, environment, policy=policy)
    try:
        made.wait_ready()
        yield made
    finally:
        made.stop()


if __name__ == "__main__":
    main()
