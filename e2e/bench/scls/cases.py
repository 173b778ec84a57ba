"""What the study of SCLS runs, in the paper's setting (section 5.1), and what each run comes to.

CodeFuse's trace was never published. Its place is taken by the lengths of the paper's other data, ShareGPT,
cut as there: 1,024 tokens of prompt and of output at most, arrivals at random for ten minutes.
"""

import functools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from e2e.bench.runs.engine import ENGINES, cost_of, host_of
from e2e.bench.runs.fleet import FLEET_SOURCES, FleetCase, gateway_of
from e2e.bench.runs.pool import Figures
from e2e.bench.scls import static_engines
from e2e.bench.scls.static_batching import LONGEST, SCHEMES, SLICE, serve
from e2e.bench.scls.static_engines import ENGINE, KV_TOKENS, StaticEngine
from e2e.cluster.places import REPOSITORY
from e2e.data import recorded
from headrace_engine.contracts import PolicyDocument
from headrace_engine.cost.host import NO_HOST_TIME
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads import shape
from headrace_engine.sim.workloads.arrival import Arrival

SOURCES = (
    *FLEET_SOURCES,
    *(
        REPOSITORY / "e2e/bench/scls" / f"{name}.py"
        for name in ("batching", "cases", "estimates", "offload", "static_batching", "static_engines")
    ),
)
EngineName = Literal["HF", "DS"]
STATIC: tuple[EngineName, ...] = ("HF", "DS")
RATES = (10, 15, 20, 25, 30)  # requests/s
MIDDLE = 20  # where parts, slices and workers are compared
SEEDS = (0, 1, 2)
SLICES = (32, 64, 128, 256, 512, 1024)  # tokens
WORKERS = (1, 2, 4, 8)
AT_ONCE = (4, 8, 12, 16, 32, 64)  # requests that an engine runs, beside FastGen's own limit
SECONDS = 600
FASTGEN = EngineSettings(
    num_blocks=KV_TOKENS // 128,
    block_size=128,
    max_num_seqs=512,  # DeepSpeed's max_ragged_sequence_count
    max_num_batched_tokens=768,  # its max_ragged_batch_size
    max_model_len=2 * LONGEST,
)
"""Defaults of DeepSpeed-FastGen 0.2: decodes first, a prompt starts when its KV fits."""


@dataclass(frozen=True, slots=True)
class StaticCase:
    """Engines that batch statically under one of `SCHEMES`."""

    engine: EngineName
    scheme: str
    rate: int = MIDDLE
    seed: int = 0
    slice: int = SLICE
    workers: int = WORKERS[-1]
    seconds: int = SECONDS


@dataclass(frozen=True, slots=True)
class ContinuousCase:
    """Engines that batch continuously: vLLM's own scheduler.

    `FastGen`: with its settings, each engine in turn, `at_once` requests of an engine at most. `vLLM`: vLLM's
    own defaults behind SAL.
    """

    system: Literal["FastGen", "vLLM"]
    rate: int = MIDDLE
    seed: int = 0
    at_once: int = FASTGEN.max_num_seqs
    seconds: int = SECONDS


Case = StaticCase | ContinuousCase


def everything() -> list[Case]:
    """List all runs of the study, each once."""
    made: list[Case] = []
    for seed in SEEDS:
        for rate in RATES:
            made += [
                StaticCase(engine, scheme, rate, seed) for engine in STATIC for scheme in ("SLS", "SCLS")
            ]
            made += [ContinuousCase("FastGen", rate, seed), ContinuousCase("vLLM", rate, seed)]
        for engine in STATIC:
            made += [StaticCase(engine, scheme, seed=seed) for scheme in SCHEMES]
            made += [StaticCase(engine, "SCLS", seed=seed, slice=tokens) for tokens in SLICES]
            made += [StaticCase(engine, "SCLS", seed=seed, workers=workers) for workers in WORKERS]
        made += [ContinuousCase("FastGen", seed=seed, at_once=at_once) for at_once in AT_ONCE]
    return list(dict.fromkeys(made))


def run(case: Case) -> Figures:
    """Simulate a case to its last token; times in seconds from arrival, `throughput` in requests/s."""
    return run_static(case) if isinstance(case, StaticCase) else run_continuous(case)


def run_static(case: StaticCase) -> Figures:
    """Simulate engines that batch statically."""
    scheme = SCHEMES[case.scheme]
    if case.scheme != "SLS":
        scheme = replace(scheme, slice=case.slice)
    served = serve(requests(case), static_engine(case.engine), scheme, case.workers)
    sizes, errors = served.sizes, served.errors
    return {
        **_responses([(each.arrival.at, each.finished_at or 0.0) for each in served.requests]),
        "completion_deviation": statistics.pstdev(worker.ended_at for worker in served.workers),
        "batch_size": statistics.fmean(sizes),
        "returned_early": served.returned_early / len(sizes),
        "estimate_rms_error": statistics.fmean(each**2 for each in errors) ** 0.5 if errors else 0.0,
        "padded_tokens": statistics.fmean(each.padded for each in served.requests),
        "invalid_tokens": statistics.fmean(each.invalid for each in served.requests),
        "three_slices": statistics.fmean(each.slices <= 3 for each in served.requests),
    }


def run_continuous(case: ContinuousCase) -> Figures:
    """Simulate engines that batch continuously."""
    from headrace_engine.sim.engine import SimulatedEngine  # noqa: PLC0415  vLLM takes ten seconds to import
    from headrace_engine.sim.fleet import simulate_fleet  # noqa: PLC0415

    fastgen = case.system == "FastGen"
    settings = replace(FASTGEN, max_num_seqs=case.at_once) if fastgen else ENGINES[ENGINE].settings
    cost, fcfs = cost_of(ENGINE), PolicyDocument("FCFS")
    host = NO_HOST_TIME if fastgen else host_of(ENGINE)
    workers = [
        SimulatedEngine(settings, cost, fcfs, number=number, listening=True, host=host)
        for number in range(WORKERS[-1])
    ]
    balancer = "round_robin" if fastgen else "sal"
    gateway = gateway_of(FleetCase("", balancer, 0.0, engines=len(workers), seed=case.seed), workers)
    outcomes = simulate_fleet(requests(case), workers, gateway, seed=case.seed).outcomes
    served = [each for each in outcomes if each is not None]
    ended = [
        max(each.finished_at or 0.0 for each in served if each.engine == number)
        for number in range(len(workers))
    ]
    return {
        **_responses([(each.arrival.at, each.finished_at or 0.0) for each in served]),
        "completion_deviation": statistics.pstdev(ended),
        "first_token_mean": statistics.fmean(each.ttft or 0.0 for each in served),
    }


def _responses(times: Sequence[tuple[float, float]]) -> Figures:
    seconds = [end - at for at, end in times]
    return {
        "throughput": len(times) / max(end for _, end in times),
        "response_mean": statistics.fmean(seconds),
        "response_p95": float(np.percentile(seconds, 95)),
        "response_longest": max(seconds),
    }


def requests(case: Case) -> list[Arrival]:
    """Draw a case's requests."""
    return shape.draw_renewal(lengths(), case.rate * case.seconds, case.rate, case.seed)


@functools.cache
def lengths() -> tuple[Arrival, ...]:
    """Return ShareGPT's lengths, cut as the paper cuts its own."""
    return tuple(
        replace(
            each,
            prompt_tokens=min(each.prompt_tokens, LONGEST),
            output_tokens=min(each.output_tokens, LONGEST),
        )
        for each in recorded.sharegpt()
    )


def static_engine(name: EngineName) -> StaticEngine:
    """Return an engine of the paper by its short name."""
    return static_engines.hugging_face() if name == "HF" else static_engines.deepspeed()
