"""The estimate of a group beside the simulator: the same requests on the same GPUs, with the same KV."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from e2e.bench.runs.command_line import Options
from e2e.bench.sharing import cases
from e2e.bench.sharing.cases import GROUPS, SLO_SCALE, STEP_TOKENS, SharingCase
from headrace_engine.sim.metrics import EDGE
from headrace_operator.placement.problem import Request
from headrace_operator.placement.shared_group import Load, serve_group
from headrace_operator.placement.step_times import StepTimes

SEEDS = 2
WAYS = ("dedicated", "FairShare")
BLOCK = 16  # tokens
MOST_RUNNING = 256  # of the simulated engines


@dataclass(frozen=True, slots=True)
class Estimated:
    """One group at one rate, means over seeds; `case` has any seed."""

    case: SharingCase
    latency: float
    simulated_latency: float
    attainment: float
    simulated_attainment: float

    @property
    def error_percent(self) -> float:
        """How far the estimated normalised latency is off."""
        return 100 * (self.latency / self.simulated_latency - 1)


def estimate_runs(options: Options) -> list[Estimated]:
    """Estimate what the study of sharing simulates, which is done where it is not stored yet."""
    wanted = [
        [SharingCase(group, way, rate, seed) for seed in range(SEEDS)]
        for group in GROUPS
        for rate in group.rates
        for way in WAYS
    ][: 2 if options.quick else None]
    everything = [case for seeds in wanted for case in seeds]
    simulated = cases.measure(everything, "sharing, simulated", options.workers)
    found = []
    for seeds in wanted:
        estimated = [estimate(case) for case in seeds]
        found.append(
            Estimated(
                seeds[0],
                latency=fmean(latency for latency, _ in estimated),
                simulated_latency=fmean(float(simulated[case]["norm_latency"]) for case in seeds),
                attainment=fmean(attainment for _, attainment in estimated),
                simulated_attainment=fmean(float(simulated[case]["attainment"]) for case in seeds),
            )
        )
    return found


def estimate(case: SharingCase) -> tuple[float, float]:
    """Return mean normalised latency and attainment, counted as the study counts them."""
    loads, alone = [], []
    for place, service in enumerate(case.group.services):
        requests = [
            Request(each.at, each.prompt_tokens, each.output_tokens)
            for each in cases.requests_of(case, place)
        ]
        gpus = service.gpus if case.way == "dedicated" else case.group.gpus
        times = StepTimes(cases.cost_of(service, gpus), STEP_TOKENS)
        loads.append(
            Load(requests, times, service.kv_blocks * BLOCK, MOST_RUNNING, fmean(times.alone(requests)))
        )
        alone.append(StepTimes(cases.cost_of(service, service.gpus), STEP_TOKENS).alone(requests))
    apart = [[load] for load in loads] if case.way == "dedicated" else [loads]
    answered = [of_service for group in apart for of_service in serve_group(group)]
    latencies: list[float] = []
    met: list[bool] = []
    for answers, seconds in zip(answered, alone, strict=True):
        kept, own = _steady([each.e2e for each in answers]), _steady(seconds)
        latencies += [each / fmean(own) for each in kept]
        met += [each <= SLO_SCALE * time for each, time in zip(kept, own, strict=True)]
    return fmean(latencies), fmean(met)


def _steady(values: Sequence[float]) -> Sequence[float]:
    cut = int(len(values) * EDGE)
    return values[cut : len(values) - cut]
