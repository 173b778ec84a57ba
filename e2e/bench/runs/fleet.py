"""One simulated run of a fleet, as a value: the engines are vLLM's scheduler, the gateway is the product's.

Loads are fractions of what the engines sustain together with stock settings on the very requests that are
served, so that a load means the same with each seed, workload and size; a slow engine counts as its part.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from e2e.bench.rivals import RIVALS
from e2e.bench.runs import workloads
from e2e.bench.runs.engine import ENGINES, SOURCES, cost_of, host_of, settings_of
from e2e.bench.runs.pool import Figures, run_all
from e2e.cluster.places import REPOSITORY
from headrace_engine.contracts import GatewayConfig, PolicyDocument, SalParameters, Slice
from headrace_engine.contracts.gateway_config import Balancer
from headrace_engine.sim import metrics
from headrace_engine.sim.fleet import Failure, Network, simulate_fleet
from headrace_engine.sim.garbage_collector import no_collector
from headrace_engine.sim.workloads import shape
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_gateway import balancers as gateway_balancers
from headrace_gateway.simulated import ONE_PICKER, Pickers, SimulatedGateway, SimulatedRelay

PRODUCT: dict[str, Balancer] = {
    re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower(): name for name in gateway_balancers.BALANCERS
}
BALANCERS = (*PRODUCT, *RIVALS)
SIDECAR = REPOSITORY / "sidecar/engine/src/headrace_sidecar"
GATEWAY = REPOSITORY / "sidecar/gateway/src/headrace_gateway"
SATURATION_SOURCES = (*SOURCES, REPOSITORY / "e2e/bench/runs/fleet.py")
FLEET_SOURCES = (
    *SATURATION_SOURCES,
    GATEWAY / "simulated.py",
    GATEWAY / "balancers",
    *(
        GATEWAY / "pick" / name
        for name in ("fleet.py", "placement.py", "tokens.py", "prefix_index.py", "rebalance.py", "line.py")
    ),
    *(SIDECAR / name for name in ("estimates.py", "reports.py", "stream.py")),
    REPOSITORY / "e2e/bench/rivals",
)
MIXED = "mixed"  # conversation and code, as many of each, at random times
CHATS_RATE = 1.0  # requests/s of users for each engine; then all times shrink to the load
PIECE = 16  # engines
SLOW = 0.5  # speed of a slow engine
# Share of requests left out, beyond the edges that metrics.summarise_run leaves out: engines start empty, and
# are full only after about as long as a request takes (5 s of 15 s with conversation at 0.9).
WARM_UP = 0.4


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
    slice_tokens: int = 0  # 0: nobody steps back
    moves: bool = False  # streams move on demand, and after their slices
    slow: int = 0  # how many engines run at half speed
    bookkeeping: bool = True
    release: str = "Net"
    report_interval: float = 0.05  # seconds between reports
    lost_at: float = 0.0  # seconds until engine 0 fails; 0: it does not
    mixed: float = 1.0  # mixed_attention_factor
    overhead_ms: float = 0.0
    host: float = 1.0  # how often the host's own time counts
    prefix_index: bool = True
    pickers: Pickers = ONE_PICKER


@dataclass(frozen=True, slots=True)
class Saturation:
    """All requests of a fleet wait from the start, before one engine; what tells them apart."""

    workload: str
    engine: str
    engines: int
    requests: int  # for each engine
    seed: int
    mixed: float
    overhead_ms: float
    host: float


@dataclass(frozen=True, slots=True)
class TimedFleet:
    """A case with its arrival rate in requests/s."""

    case: FleetCase
    rate: float


def measure(cases: Sequence[FleetCase], title: str, workers: int) -> dict[FleetCase, Figures]:
    """Measure each case: what `metrics.summarise_run` names, `rate`, `refused`, `reports`, `choices`."""
    jobs = list(dict.fromkeys(job for case in cases for job in saturations(case)))
    found = run_all(jobs, run_saturation, f"{title}: saturation", sources=SATURATION_SOURCES, workers=workers)
    rates = {job: float(figures["rate"]) for job, figures in found.items()}
    timed = {case: TimedFleet(case, case.load * sustained(case, rates)) for case in cases}
    figures = run_all(list(timed.values()), run_fleet, title, sources=FLEET_SOURCES, workers=workers)
    return {case: figures[job] for case, job in timed.items()}


def saturations(case: FleetCase) -> list[Saturation]:
    """Return what gives the case's load its meaning: its requests, in pieces that smaller fleets serve too.

    A recorded trace gives a segment of it; that of n times `PIECE` engines is n such segments in a row.
    """
    pieces, rest = divmod(case.engines, PIECE)
    if case.workload not in workloads.RECORDED or rest:
        pieces, engines = 1, case.engines
    else:
        engines = PIECE
    return [
        Saturation(
            *(case.workload, case.engine, engines, case.requests, seed),
            *(case.mixed, case.overhead_ms, case.host),
        )
        for seed in range(case.seed * pieces, (case.seed + 1) * pieces)
    ]


def sustained(case: FleetCase, rates: Mapping[Saturation, float]) -> float:
    """Return requests/s that the whole fleet sustains; pieces of equal size add their times."""
    jobs = saturations(case)
    one = len(jobs) / sum(1 / rates[job] for job in jobs)
    return one * (case.engines - case.slow * (1 - SLOW))


def run_saturation(job: Saturation) -> Figures:
    """Measure requests/s that one engine sustains, stock and without prefix caching."""
    from headrace_engine.sim.run import simulate  # noqa: PLC0415  vLLM takes ten seconds to import

    settings = replace(settings_of(job.engine, sync=False), prefix_caching=False)
    waiting = [replace(arrival, at=0.0) for arrival in requests_of(job, settings.max_model_len)]
    cost, host = cost_of(job.engine, job.mixed, job.overhead_ms), host_of(job.engine, job.host)
    run = simulate(waiting, settings, cost, host=host)
    return {"rate": metrics.sustained_rate(run.outcomes)}


def requests_of(case: FleetCase | Saturation, longest: int) -> list[Arrival]:
    """Return the case's requests, whatever its load is; their times are still to be stretched to it."""
    count = case.requests * case.engines
    if case.workload != MIXED:
        rate = CHATS_RATE * case.engines if case.workload == "chats" else 1.0
        return workloads.make(case.workload, count, rate, case.seed, longest)
    parts = [
        workloads.make(name, count // 2, 1.0, case.seed, longest)
        for name in ("conversation-poisson", "code-poisson")
    ]
    return sorted((each for part in parts for each in part), key=lambda arrival: arrival.at)


def run_fleet(job: TimedFleet) -> Figures:
    """Simulate one fleet, and return the figures of the run."""
    # vLLM takes ten seconds to import.
    from headrace_engine.sim.engine import SimulatedEngine  # noqa: PLC0415

    case, profile = job.case, ENGINES[job.case.engine]
    settings = profile.settings
    cost, host = cost_of(case.engine, case.mixed, case.overhead_ms), host_of(case.engine, case.host)
    its_slice = Slice(case.slice_tokens, hand_back=case.moves) if case.slice_tokens else None
    document = PolicyDocument(case.policy, slice=its_slice)
    engines = [
        SimulatedEngine(settings, cost, document, number=number, listening=True, host=host)
        for number in range(case.engines)
    ]
    for engine in engines[: case.slow]:
        engine.slow_down(1 / SLOW)
    gateway = gateway_of(case, engines)
    with no_collector():
        run = simulate_fleet(
            shape.at_rate(requests_of(case, settings.max_model_len), job.rate),
            engines,
            gateway,
            network=Network(interval=case.report_interval),
            failures=[Failure(case.lost_at, 0)] if case.lost_at else [],
            relay=SimulatedRelay(gateway, case.seed) if case.moves else None,
            seed=case.seed,
        )
    served = [outcome for outcome in run.outcomes if outcome is not None]
    return {
        **metrics.summarise_run(served[int(WARM_UP * len(served)) :]),
        "rate": job.rate,
        "refused": len(run.outcomes) - len(served),
        "reports": run.reports,
        "moved": run.moved,
        "steps": sum(engine.steps for engine in engines),
        "choices": run.choices,
    }


def gateway_of(case: FleetCase, engines: Sequence[Any]) -> SimulatedGateway:
    """Make the case's gateway before these engines."""
    boards = [engine.link for engine in engines]
    sal = SalParameters(kv_release="Gross" if case.release == "Gross" else "Net")
    config = GatewayConfig("llm", "chat", ("chat",), "chat", sal=sal)
    if case.balancer in RIVALS:
        return RIVALS[case.balancer](config, engines, case.seed)
    config = replace(config, balancer=PRODUCT[case.balancer], prefix_caching=case.prefix_index)
    return SimulatedGateway(config, boards, case.seed, bookkeeping=case.bookkeeping, pickers=case.pickers)
