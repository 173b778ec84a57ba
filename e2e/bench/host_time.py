"""What vLLM's own work takes in and around a step, on this CPU: `python -m e2e.bench.host_time`.

The real engine core serves a tiny model in one process: scheduler, model runner with its input preparation,
and the front end's detokenising. The model's forward pass and sampling, which a GPU does, are taken out; what
is left is the host's. Times are CPU seconds of the thread, so another process on the machine matters little.
Steps with 1 to 256 running requests, some with requests that start, are fitted by a line. Left out is what
only a server has (HTTP, serialising between its processes), and what a GPU adds (launches, copies).

It shows the form of `headrace_engine.cost.host.HostTime`, a fixed part and one for each request; the numbers
of a server with GPUs are calibrated on published runs.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from e2e.bench.report import results
from e2e.bench.runs.command_line import describe
from e2e.cluster import model

COMMAND = "python -m e2e.bench.host_time"
RUNNING = (1, 32, 64, 128, 256)
STARTS = (0, 1, 4)  # requests per step that start, and end with their first token
STEPS = 80  # timed of each
WARM_UP = 15
PROMPT = 64  # tokens
US = 1e6


@dataclass(slots=True)
class Stopwatch:
    """CPU seconds of this thread inside the functions that it wraps."""

    seconds: float = 0.0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed."""

        def timed(*arguments: Any, **named: Any) -> Any:
            started = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.thread_time() - started

        return timed


@dataclass(slots=True)
class Engine:
    """The real engine in this process."""

    llm: Any
    device: Stopwatch = field(default_factory=Stopwatch)
    names: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        """Time what a GPU would do."""
        runner = self.core.model_executor.driver_worker.worker.model_runner
        for name in ("_model_forward", "_sample"):
            setattr(runner, name, self.device.wrap(getattr(runner, name)))
        runner.model.compute_logits = self.device.wrap(runner.model.compute_logits)

    @property
    def core(self) -> Any:
        """The engine core of vLLM."""
        return self.llm.llm_engine.engine_core.engine_core

    def add(self, output_tokens: int) -> None:
        """Send a request that produces just so many tokens."""
        from vllm import SamplingParams  # noqa: PLC0415  it takes ten seconds to import

        prompt = {"prompt_token_ids": [1 + i % 200 for i in range(PROMPT)]}
        sampling = SamplingParams(max_tokens=output_tokens, ignore_eos=True, temperature=0)
        self.llm.llm_engine.add_request(str(next(self.names)), prompt, sampling)

    def step(self) -> tuple[float, float]:
        """Make one step; returns CPU seconds of the engine core alone, and of the front end."""
        before, started = self.device.seconds, time.thread_time()
        outputs, _ = self.core.step()
        core = time.thread_time() - started - (self.device.seconds - before)
        started = time.thread_time()
        for each in outputs.values():
            self.llm.llm_engine.output_processor.process_outputs(each.outputs)
        return core, time.thread_time() - started


def main() -> None:
    """Measure, fit and write the figures."""
    describe(__doc__).parse_args()
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "OMP_NUM_THREADS": "1",
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        engine = start(Path(folder))
        for running in RUNNING:
            while len(engine.core.scheduler.running) + len(engine.core.scheduler.waiting) < running:
                engine.add(4096 - PROMPT - 1)
            for starts in STARTS:
                core, front = measure(engine, starts)
                rows.append((running, starts, core, front))
                shown = f"{core * US:7.0f} us, front end {front * US:6.0f} us"
                print(f"  {running:4} running, {starts} start: {shown}", flush=True)
    print(results.write("host_time", COMMAND, figures_of(rows)))


def start(folder: Path) -> Engine:
    """Start the engine with a tiny model."""
    from vllm import LLM  # noqa: PLC0415  it takes ten seconds to import

    model.write(folder)
    return Engine(
        LLM(
            str(folder),
            dtype="float32",
            gpu_memory_utilization=0.1,  # of memory, with what the model needs; all KV blocks are far less
            enforce_eager=True,
            enable_prefix_caching=False,
            async_scheduling=False,
            max_model_len=4096,
            max_num_seqs=512,
            max_num_batched_tokens=8192,
            num_gpu_blocks_override=20_000,
            block_size=32,
        )
    )


def measure(engine: Engine, starts: int) -> tuple[float, float]:
    """Return the median CPU seconds of a step, of engine core and front end, with so many starts in each."""
    times = []
    for _ in range(WARM_UP + STEPS):
        for _ in range(starts):
            engine.add(1)
        times.append(engine.step())
    core, front = zip(*times[WARM_UP:], strict=True)
    return statistics.median(core), statistics.median(front)


def figures_of(rows: list[tuple[int, int, float, float]]) -> dict[str, float]:
    """Fit engine core and front end by straight lines over requests and starts; microseconds."""
    table = np.array(rows)
    requests = table[:, 0] + table[:, 1]
    columns = np.column_stack([np.ones(len(table)), requests, table[:, 1]])
    (fixed, each, start), *_ = np.linalg.lstsq(columns, table[:, 2], rcond=None)
    output = float(np.polyfit(requests, table[:, 3], 1)[0])
    fitted = columns @ np.array([fixed, each, start])
    return {
        "per_step_us": round(float(fixed) * US, 1),
        "per_request_us": round(float(each) * US, 2),
        "per_start_us": round(float(start) * US, 1),
        "detokenise_per_output_us": round(output * US, 2),
        "fit_mape_percent": round(100 * float(np.mean(np.abs(fitted / table[:, 2] - 1))), 1),
    }


if __name__ == "__main__":
    main()
