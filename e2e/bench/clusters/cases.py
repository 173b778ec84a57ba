"""What the study of clusters runs: services drawn at random, a plan for them, and the simulated run of it.

A plan is made of the first half of what each service is asked, and judged by the second: engines are vLLM's
scheduler, a service's requests go each to its engine with the fewest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random
from statistics import fmean, quantiles
from typing import Any

from e2e.bench.placement.instances import SLO_SCALE, TODAY, Instance, Models, draw
from e2e.bench.runs.engine import SOURCES
from e2e.bench.runs.pool import Figures, run_all
from e2e.bench.sharing.cases import REPORTED, TURNS
from e2e.cluster.places import REPOSITORY
from headrace_engine.contracts import PolicyDocument
from headrace_engine.cost.host import server_host_time
from headrace_engine.sim import metrics
from headrace_engine.sim.garbage_collector import no_collector
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.simulated_turns import Seat, SimulatedTurns
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_operator.placement.problem import Plan, Request, Service
from headrace_operator.placement.score import Scorer
from headrace_operator.placement.search import search, search_within
from headrace_operator.placement.step_times import StepTimes
from headrace_operator.planning.answer import WORK

CLUSTER_SOURCES = (
    *SOURCES,
    REPOSITORY / "operator/src/headrace_operator/placement",
    REPOSITORY / "e2e/bench/placement/instances.py",
    REPOSITORY / "e2e/bench/sharing/cases.py",
    REPOSITORY / "e2e/bench/clusters/cases.py",
)
BLOCK = 16  # tokens
SLO_SCALES = (2, SLO_SCALE, 10)  # times as long as a request takes alone on the fewest GPUs


@dataclass(frozen=True, slots=True)
class Way:
    """How services are placed and how those share that are placed together."""

    most_members: int  # of a group
    turns: str | None = "FairShare"  # None: GPUs in time slices
    greedy: bool = False  # SeaLLM's search alone


WAYS: Mapping[str, Way] = {
    "apart": Way(1),
    "pairs": Way(2),
    "fours": Way(4),
    "seallm": Way(2, "DoublingBudget", greedy=True),
    "oldest_first": Way(2, "oldest_first", greedy=True),
    "in_rotation": Way(2, "in_rotation"),
    "time_sliced": Way(2, None),
}
"""The first is what people run who plan well: the best plan that gives each service GPUs of its own.

`oldest_first` stands for AlpaServe, `in_rotation` for MuxServe's turns, `time_sliced` for NVIDIA's device
plugin.
"""
PAPER = Models("A100", 4096, {"llama-2-7b": 3, "llama-2-13b": 2, "llama-2-70b": 1})
MODELS: Mapping[str, Models] = {"today": TODAY, "paper": PAPER}


@dataclass(frozen=True, slots=True)
class ClusterCase:
    """One run. `gpus`: so many of the instance's, as whole nodes and a part of one.

    `noise`: standard deviation of the output lengths that the plan is made of, as a share of them.
    """

    instance: Instance
    way: str
    gpus: int
    models: str = "today"
    noise: float = 0.0


def measure(cases: Sequence[ClusterCase], title: str, workers: int) -> Mapping[ClusterCase, Figures]:
    """Run what is missing, and return the figures of each."""
    return run_all(cases, run_case, title, sources=CLUSTER_SOURCES, workers=workers)


def run_case(case: ClusterCase) -> Figures:
    """Plan for one cluster, and simulate it."""
    services, all_nodes = draw(case.instance, MODELS[case.models])
    nodes = all_nodes.first(case.gpus)
    middle = max(each.at for service in services for each in service.requests) / 2
    before = [_between(service, 0.0, middle) for service in services]
    asked = [_between(service, middle, inf) for service in services]
    told = [_misjudge(service, case.noise, number) for number, service in enumerate(before)]
    way = WAYS[case.way]
    scorer = Scorer(told, nodes, alike=not way.greedy)
    if way.greedy:
        found = search(scorer, lambda: False, most_members=way.most_members, improve=False)
    else:
        found = search_within(scorer, WORK, most_members=way.most_members)
    plan = tuple(group for group in found.plan if group.members)
    with no_collector():
        served = _serve(plan, asked, [scorer.kv_tokens(group) for group in plan], way)
    return {
        "unplaced": sum(not outcomes for outcomes in served),
        "gpus": sum(group.gpus for group in plan),
        "shared_gpus": sum(group.gpus for group in plan if len(group.members) > 1),
        "expected_latency": found.score.latency,
        **_summarise(asked, served, scorer.fewest),
    }


def _between(service: Service, begin: float, end: float) -> Service:
    requests = tuple(each._replace(at=each.at - begin) for each in service.requests if begin <= each.at < end)
    return replace(service, requests=requests)


def _misjudge(service: Service, noise: float, number: int) -> Service:
    if not noise:
        return service
    chance = Random(f"noise {number}")
    requests = tuple(
        each._replace(
            output_tokens=min(
                max(round(each.output_tokens * chance.gauss(1.0, noise)), 1),
                service.longest - each.prompt_tokens,
            )
        )
        for each in service.requests
    )
    return replace(service, requests=requests)


class ServiceEngines:
    """A service's engines, before which each request goes to the one that has the fewest."""

    def __init__(self, engines: Sequence[Any]) -> None:
        self.engines = engines
        self._held = [0] * len(engines)

    @property
    def next_event_at(self) -> float:
        """When something is due; infinity while all are idle."""
        return min(float(engine.next_event_at) for engine in self.engines)

    def add(self, arrival: Arrival, now: float) -> None:
        """Take a request that arrives at `now`."""
        number = min(range(len(self.engines)), key=self._held.__getitem__)
        self._held[number] += 1
        self.engines[number].add(arrival, now)

    def advance(self) -> None:
        """Carry out what is due."""
        number = min(range(len(self.engines)), key=lambda number: float(self.engines[number].next_event_at))
        self._held[number] -= len(self.engines[number].advance())


def _serve(
    plan: Plan, asked: Sequence[Service], kv_tokens: Sequence[Sequence[int]], way: Way
) -> list[list[Outcome]]:
    from headrace_engine.sim.baselines.time_slicing import TimeSlicedEngine, TimeSlices  # noqa: PLC0415
    from headrace_engine.sim.engine import SimulatedEngine  # noqa: PLC0415  vLLM takes ten seconds
    from headrace_engine.sim.run import serve_together  # noqa: PLC0415

    engines: list[list[Any]] = [[] for _ in asked]
    for group, tokens in zip(plan, kv_tokens, strict=True):
        turns = SimulatedTurns(*TURNS[way.turns]) if way.turns and len(group.members) > 1 else None
        slices = TimeSlices() if way.turns is None else None
        for number, its_tokens in zip(group.members, tokens, strict=True):
            engine: Any = SimulatedEngine(
                _settings(asked[number], its_tokens),
                asked[number].costs[group.gpus],
                PolicyDocument("FCFS"),
                number=len(engines[number]),
                host=server_host_time(group.gpus),
                seat=None if turns is None else Seat(turns),
            )
            engines[number].append(engine if slices is None else TimeSlicedEngine(engine, slices))
    placed = [number for number, its in enumerate(engines) if its]
    serve_together(
        [ServiceEngines(engines[number]) for number in placed],
        [[Arrival(*request) for request in asked[number].requests] for number in placed],
    )
    return [[outcome for engine in its for outcome in engine.outcomes] for its in engines]


def _settings(service: Service, kv_tokens: int) -> EngineSettings:
    return EngineSettings(
        num_blocks=kv_tokens // BLOCK,
        max_num_seqs=service.most_running,
        max_num_batched_tokens=service.step_tokens,
        max_model_len=service.longest,
        async_scheduling=True,
        prefix_caching=True,
    )


def _summarise(
    asked: Sequence[Service], served: Sequence[Sequence[Outcome]], fewest: Sequence[int]
) -> dict[str, float]:
    """Sum up; a service without an engine met no target, and is in nothing else."""
    norms: list[float] = []
    met = dict.fromkeys(SLO_SCALES, 0)
    worst = 1.0
    total = 0
    for service, outcomes, gpus in zip(asked, served, fewest, strict=True):
        kept = metrics.steady_outcomes(outcomes)
        total += len(service.requests) - 2 * int(len(service.requests) * metrics.EDGE)
        times = StepTimes(service.costs[gpus], service.step_tokens)
        alone = times.alone(
            [
                Request(each.arrival.at, each.arrival.prompt_tokens, each.arrival.output_tokens)
                for each in kept
            ]
        )
        took = [float(each.e2e or inf) for each in kept]
        mean = fmean(alone) if alone else inf
        norms += [each / mean for each in took]
        in_time = {
            scale: sum(e2e <= scale * own for e2e, own in zip(took, alone, strict=True))
            for scale in SLO_SCALES
        }
        met = {scale: met[scale] + in_time[scale] for scale in SLO_SCALES}
        worst = min(worst, in_time[SLO_SCALE] / len(kept) if kept else 0.0)
    run = metrics.summarise_run([outcome for outcomes in served for outcome in outcomes])
    return {
        "norm_latency": fmean(norms),
        "norm_latency_p99": quantiles(norms, n=100)[98],
        **{f"attainment_{scale}": met[scale] / total for scale in SLO_SCALES},
        "attainment_worst_service": worst,
        **{name: run[name] for name in REPORTED},
    }
