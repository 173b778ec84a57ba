"""What the study of sharing runs: groups of services, ways to share their GPUs, rates; and one simulated run.

Arrivals are ServeGen's, which stand in for the Azure Functions trace of the paper: a client's requests come
in bursts. Lengths are of the dataset that a service names.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean, quantiles
from typing import Any

from e2e.bench.runs import workloads
from e2e.bench.runs.engine import SOURCES
from e2e.bench.runs.pool import Figures, run_all
from e2e.cluster.places import REPOSITORY
from headrace_engine.contracts import PolicyDocument
from headrace_engine.contracts.turn_group import TurnOrder
from headrace_engine.cost import catalog
from headrace_engine.cost.host import server_host_time
from headrace_engine.cost.model import CostModel, unloaded_seconds
from headrace_engine.sim import metrics
from headrace_engine.sim.baselines import feedback_queue, turn_orders
from headrace_engine.sim.garbage_collector import no_collector
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.simulated_turns import Baseline, Seat, SimulatedTurns
from headrace_engine.sim.workloads import shape
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.turns.rules import STARVATION_SECONDS

SHARING_SOURCES = (*SOURCES, REPOSITORY / "e2e/bench/sharing/cases.py")
GPU = "H100"
STEP_TOKENS = 8192
LONGEST = 8192  # tokens of prompt and output
SECONDS = 120  # of arrivals
LEAST_REQUESTS = 400
SLO_SCALE = 5  # times as long as a request takes alone on the service's own GPU

TURNS: Mapping[str, tuple[TurnOrder | Baseline, float]] = {
    "FairShare": ("FairShare", STARVATION_SECONDS),
    "DoublingBudget": ("DoublingBudget", STARVATION_SECONDS),
    "oldest_first": (turn_orders.oldest_first, inf),
    "in_rotation": (turn_orders.in_rotation, inf),
    "by_level": (turn_orders.by_level, feedback_queue.STARVATION),
}
"""Ways of taking turns: in which order, and after how many seconds of waiting an engine goes first anyhow."""
REPORTED = ("ttft_mean", "ttft_p99", "tpot_mean", "tpot_p99", "gap_p99", "e2e_mean", "e2e_p99", "wait_max")
WAYS = ("dedicated", "switched", "time_sliced", *TURNS)
"""`dedicated`: each service has GPUs of its own; `switched`: whole models are; `time_sliced`: no turns."""


@dataclass(frozen=True, slots=True)
class Service:
    """One service. `kv_blocks`: of 16 tokens, that fit beside its weights on its own GPUs, and its share of
    what fits on all GPUs beside everybody's.
    """

    model: str
    lengths: str  # of `workloads.LENGTHS`, or as `arrivals`
    arrivals: str  # a ServeGen workload
    share: float  # of the group's requests
    kv_blocks: int
    gpus: int = 1  # of its own, if it has some


@dataclass(frozen=True, slots=True)
class Group:
    """Services that share GPUs, on which each of their models is split. `key`: in figures."""

    key: str
    name: str
    gpus: int
    rates: tuple[float, ...]  # requests/s of all services
    services: tuple[Service, ...]


@dataclass(frozen=True, slots=True)
class SharingCase:
    """One run. `rate`: requests/s of all services."""

    group: Group
    way: str
    rate: float
    seed: int


GROUPS = (
    Group(
        "two",
        "chats and summaries: Llama-3-8B with ShareGPT's lengths (80 %), Mistral-Nemo-12B with arXiv's",
        2,
        (1, 2, 5, 10, 20),
        (
            Service("llama-3-8b", "sharegpt", "servegen-m-large", 0.8, 26_000),
            Service("mistral-nemo-12b", "arxiv", "servegen-m-small", 0.2, 18_000),
        ),
    ),
    Group(
        "two_unlike",
        "code and reasoning: Llama-3-8B with Azure's code (80 %), Mistral-Nemo-12B with DeepSeek-R1's",
        2,
        (1, 2, 5, 10, 20),
        (
            Service("llama-3-8b", "code", "servegen-m-large", 0.8, 26_000),
            Service("mistral-nemo-12b", "servegen-deepseek-r1", "servegen-deepseek-r1", 0.2, 18_000),
        ),
    ),
    Group(
        "three",
        "three of Qwen3-32B: ShareGPT's lengths (70 %, two GPUs), ServeGen's M-small (20 %), code (10 %)",
        4,
        (1, 2, 5, 10),
        (
            Service("qwen3-32b", "sharegpt", "servegen-m-large", 0.7, 17_000, gpus=2),
            Service("qwen3-32b", "servegen-m-small", "servegen-m-small", 0.2, 1280),
            Service("qwen3-32b", "code", "servegen-m-small", 0.1, 1280),
        ),
    ),
    Group(
        "four",
        "four of Qwen3-32B: ShareGPT's lengths (50 %), ServeGen's M-small (25 %), code (15 %), arXiv (10 %)",
        4,
        (1, 2, 5, 10),
        (
            Service("qwen3-32b", "sharegpt", "servegen-m-large", 0.5, 1280),
            Service("qwen3-32b", "servegen-m-small", "servegen-m-small", 0.25, 1280),
            Service("qwen3-32b", "code", "servegen-m-small", 0.15, 1280),
            Service("qwen3-32b", "arxiv", "servegen-m-large", 0.1, 1280),
        ),
    ),
)
SEEDS = 8


def everything() -> list[SharingCase]:
    """List all runs of the study."""
    return [
        SharingCase(group, way, rate, seed)
        for group in GROUPS
        for rate in group.rates
        for way in WAYS
        for seed in range(SEEDS)
    ]


def measure(cases: Sequence[SharingCase], title: str, workers: int) -> Mapping[SharingCase, Figures]:
    """Run what is missing, and return the figures of each."""
    return run_all(cases, run_case, title, sources=SHARING_SOURCES, workers=workers)


def run_case(case: SharingCase) -> Figures:
    """Simulate one run."""
    loads = [requests_of(case, place) for place in range(len(case.group.services))]
    with no_collector():
        served = _serve(case, loads)
    steady = [metrics.steady_outcomes(outcomes) for outcomes in served]
    alone = [
        [_alone(cost_of(service, service.gpus), outcome.arrival) for outcome in outcomes]
        for service, outcomes in zip(case.group.services, steady, strict=True)
    ]
    by_service = [
        [float(outcome.e2e or 0) / fmean(seconds) for outcome in outcomes]
        for outcomes, seconds in zip(steady, alone, strict=True)
    ]
    norms = [each for norms in by_service for each in norms]
    kept = [outcome for outcomes in steady for outcome in outcomes]
    unloaded = [each for seconds in alone for each in seconds]
    met = [float(outcome.e2e or 0) <= SLO_SCALE * each for outcome, each in zip(kept, unloaded, strict=True)]
    run = metrics.summarise_run([outcome for outcomes in served for outcome in outcomes])
    return {
        "norm_latency": fmean(norms),
        "norm_latency_p99": quantiles(norms, n=100)[98],
        "norm_latency_worst_service": max(map(fmean, by_service)),
        "attainment": fmean(met),
        **{name: run[name] for name in REPORTED},
    }


def requests_of(case: SharingCase, place: int) -> list[Arrival]:
    """Return what one service is asked, over the same seconds as the others."""
    service = case.group.services[place]
    rate = case.rate * service.share
    total = max(LEAST_REQUESTS, case.rate * SECONDS)
    count = max(round(total * service.share), 20)
    seed = case.seed * len(case.group.services) + place
    arrivals = workloads.make(service.arrivals, count, rate, seed, LONGEST)
    if service.lengths == service.arrivals:
        return arrivals
    usable = shape.keep_fitting(workloads.LENGTHS[service.lengths](), LONGEST)
    lengths = random.Random(f"sharing {seed}").choices(usable, k=count)
    return [
        replace(length, at=arrival.at, prefix=()) for arrival, length in zip(arrivals, lengths, strict=True)
    ]


def cost_of(service: Service, gpus: int) -> CostModel:
    """Return what the service's steps take on so many GPUs."""
    return catalog.find_cost_model(service.model, GPU, gpus, None)


def _settings(service: Service) -> EngineSettings:
    return EngineSettings(
        num_blocks=service.kv_blocks,
        max_num_batched_tokens=STEP_TOKENS,
        max_model_len=LONGEST,
        async_scheduling=True,
        prefix_caching=True,
    )


def _serve(case: SharingCase, loads: Sequence[Sequence[Arrival]]) -> list[list[Outcome]]:
    from headrace_engine.sim.baselines import mlfq  # noqa: PLC0415  vLLM takes ten seconds
    from headrace_engine.sim.baselines.model_switching import Switch, SwitchedEngine  # noqa: PLC0415
    from headrace_engine.sim.baselines.time_slicing import TimeSlicedEngine, TimeSlices  # noqa: PLC0415
    from headrace_engine.sim.engine import SimulatedEngine  # noqa: PLC0415
    from headrace_engine.sim.run import serve_together  # noqa: PLC0415

    policy: Any = mlfq() if case.way == "by_level" else PolicyDocument("FCFS")
    turns = SimulatedTurns(*TURNS[case.way]) if case.way in TURNS else None
    engines: list[Any] = []
    for number, service in enumerate(case.group.services):
        gpus = service.gpus if case.way == "dedicated" else case.group.gpus
        engine = SimulatedEngine(
            _settings(service),
            cost_of(service, gpus),
            policy,
            number=number,
            host=server_host_time(gpus),
            seat=None if turns is None else Seat(turns),
        )
        engines.append(engine)
    if case.way == "switched":
        switch = Switch()
        engines = [SwitchedEngine(engine, switch) for engine in engines]
    if case.way == "time_sliced":
        slices = TimeSlices()
        engines = [TimeSlicedEngine(engine, slices) for engine in engines]
    serve_together(engines, loads)
    return [engine.outcomes for engine in engines]


def _alone(cost: CostModel, arrival: Arrival) -> float:
    return unloaded_seconds(cost, arrival.prompt_tokens, arrival.output_tokens, STEP_TOKENS)
