"""One simulated run of a fleet, as a value: the engines are vLLM's scheduler, the gateway is the product's.

Loads are fractions of what the engines sustain together with stock settings; a slow one counts as its part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from e2e.bench import workloads
from e2e.bench.cases import ENGINES, SOURCES, Case, Overload, cost_of, overload, sustained_rates
from e2e.bench.pool import REPOSITORY, Figures, run_all
from e2e.bench.rivals import RIVALS
from headrace_engine.contracts import GatewayConfig, PolicyDocument, SalParameters
from headrace_engine.contracts.gateway_config import Balancer
from headrace_engine.sim import metrics
from headrace_engine.sim.fleet import Failure, Network, simulate_fleet
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_sidecar.simulated import SimulatedGateway

PRODUCT: dict[str, Balancer] = {
    "sal": "SAL",
    "least_request": "LeastRequest",
    "power_of_two": "PowerOfTwo",
    "round_robin": "RoundRobin",
    "random": "Random",
}
BALANCERS = (*PRODUCT, *RIVALS)
SIDECAR = REPOSITORY / "sidecar/src/headrace_sidecar"
FLEET_SOURCES = (
    *SOURCES,
    SIDECAR / "simulated.py",
    SIDECAR / "gateway/balancers",
    *(SIDECAR / "gateway" / name for name in ("fleet.py", "endpoint.py", "tokens.py", "prefix_index.py")),
    *(SIDECAR / "engine" / name for name in ("estimates.py", "reports.py", "stream.py")),
    REPOSITORY / "e2e/bench/fleet_cases.py",
    REPOSITORY / "e2e/bench/rivals.py",
)
MIXED = "mixed"  # conversation and code, as many of each, at random times
SLOW = 0.5  # speed of a slow engine
SATURATION_REQUESTS = 1500
WARM_UP = (
    0.25  # share of the requests left out, beyond the edges that metrics.summarise leaves out: engines fill
)


@dataclass(frozen=True, slots=True)
class FleetCase:
    """One run. `balancer`: one of `BALANCERS`. `requests`: for each engine."""

    workload: str
    balancer: str
    load: float
    engines: int = 16
    seed: int = 0
    requests: int = 300
    engine: str = "llama-3-8b-h100"
    policy: str = "FCFS"
    slow: int = 0  # how many engines run at half speed
    bookkeeping: bool = True
    release: str = "Net"
    looks: float = 0.05  # seconds between reports
    lost_at: float = 0.0  # seconds until engine 0 fails; 0: it does not
    mixed: float = 1.0  # mixed_attention_factor
    overhead_ms: float = 0.0
    prefix_caching: bool = False
    prefix_index: bool = True


@dataclass(frozen=True, slots=True)
class TimedFleet:
    """A case with its arrival rate in requests/s."""

    case: FleetCase
    rate: float


def measure(cases: Sequence[FleetCase], title: str, workers: int) -> dict[FleetCase, Figures]:
    """Figures of each case as `metrics.summarise` names them, and `rate`, `refused`, `reports`, `choices`."""
    rates = sustained_rates(
        [part for case in cases for part in _parts(case)], f"{title}: saturation", workers
    )
    timed = {case: TimedFleet(case, case.load * _capacity(case, rates)) for case in cases}
    found = run_all(list(timed.values()), run_fleet, title, sources=FLEET_SOURCES, workers=workers)
    return {case: found[job] for case, job in timed.items()}


def _parts(case: FleetCase) -> list[Case]:
    """One engine with each of the workload's parts."""
    recorded = case.workload.partition("-")[0]
    name = recorded if recorded in workloads.RECORDED else case.workload
    names = ["conversation", "code"] if case.workload == MIXED else [name]
    return [
        Case(
            name,
            case.engine,
            1.0,
            requests=SATURATION_REQUESTS,
            mixed=case.mixed,
            overhead_ms=case.overhead_ms,
        )
        for name in names
    ]


def _capacity(case: FleetCase, rates: Mapping[Overload, float]) -> float:
    """Requests/s that the whole fleet sustains; parts in equal numbers add their times."""
    parts = [rates[overload(part)] for part in _parts(case)]
    one = len(parts) / sum(1 / rate for rate in parts)
    return one * (case.engines - case.slow * (1 - SLOW))


def arrivals_of(case: FleetCase, rate: float, settings: EngineSettings) -> list[Arrival]:
    """The case's requests."""
    count, longest = case.requests * case.engines, settings.max_model_len
    if case.workload != MIXED:
        return workloads.make(case.workload, count, rate, case.seed, longest)
    parts = [
        workloads.make(name, count // 2, rate / 2, case.seed, longest)
        for name in ("conversation-poisson", "code-poisson")
    ]
    return sorted((each for part in parts for each in part), key=lambda arrival: arrival.at)


def run_fleet(job: TimedFleet) -> Figures:
    """Figures of one run."""
    from headrace_engine.sim.engine import SimulatedEngine  # noqa: PLC0415  vLLM takes ten seconds to import

    case, profile = job.case, ENGINES[job.case.engine]
    settings = replace(profile.settings, prefix_caching=case.prefix_caching)
    cost = cost_of(case.engine, case.mixed, case.overhead_ms)
    document = PolicyDocument(case.policy)
    engines = [
        SimulatedEngine(settings, cost, document, number=number, listening=True)
        for number in range(case.engines)
    ]
    for engine in engines[: case.slow]:
        engine.slow(1 / SLOW)
    gateway = gateway_of(case, engines)
    run = simulate_fleet(
        arrivals_of(case, job.rate, settings),
        engines,
        gateway,
        network=Network(looks=case.looks),
        failures=[Failure(case.lost_at, 0)] if case.lost_at else [],
        seed=case.seed,
    )
    served = [outcome for outcome in run.outcomes if outcome is not None]
    return {
        **metrics.summarise(served[int(WARM_UP * len(served)) :]),
        "rate": job.rate,
        "refused": len(run.outcomes) - len(served),
        "reports": run.reports,
        "steps": sum(engine.steps for engine in engines),
        "choices": run.choices,
    }


def gateway_of(case: FleetCase, engines: Sequence[Any]) -> SimulatedGateway:
    """The case's gateway before these engines."""
    boards = [engine.link for engine in engines]
    sal = SalParameters(kv_release="Gross" if case.release == "Gross" else "Net")
    config = GatewayConfig("llm", "chat", ("chat",), "chat", sal=sal)
    if case.balancer in RIVALS:
        return RIVALS[case.balancer](config, boards, case.seed)
    config = replace(config, balancer=PRODUCT[case.balancer], prefix_caching=case.prefix_index)
    return SimulatedGateway(config, boards, case.seed, bookkeeping=case.bookkeeping)
