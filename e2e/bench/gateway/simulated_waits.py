"""What the simulated fleet says of the same requests: vLLM's scheduler, the gateway's own code, no Envoy."""

from dataclasses import dataclass
from statistics import fmean

from e2e.bench.gateway.settings import BALANCERS, COST, ENGINES, LIMITS, LONGEST, arrivals, service
from e2e.bench.gateway.waits import LOADS, WARM_UP, Waits
from e2e.bench.runs import pool
from e2e.cluster.places import REPOSITORY
from headrace_engine.contracts import PolicyDocument
from headrace_engine.contracts.gateway_config import Balancer
from headrace_engine.sim.fleet import simulate_fleet
from headrace_engine.sim.settings import EngineSettings
from headrace_gateway.simulated import SimulatedGateway

HERE = REPOSITORY / "e2e/bench/gateway"
SOURCES = (
    *pool.ENGINE_SOURCES,
    REPOSITORY / "sidecar/engine/src",
    REPOSITORY / "sidecar/gateway/src",
    *(HERE / f"{name}.py" for name in ("settings", "simulated_waits", "stand_in", "waits")),
)


@dataclass(frozen=True, slots=True)
class Job:
    """One measured run, to be simulated; `rate` in requests per second of the whole fleet."""

    rate: float
    seconds: float
    run: int
    balancer: Balancer


def predict(rate: float, runs: int, seconds: float) -> dict[str, Waits]:
    """Simulate the waits by load, for engines that were measured to do `rate` requests/s each."""
    jobs = {
        (name, balancer, run): Job(round(load * rate * ENGINES, 2), seconds, run, balancer)
        for name, load in LOADS.items()
        for balancer in BALANCERS
        for run in range(runs)
    }
    found = pool.run_all(list(jobs.values()), simulate, "simulated waits", sources=SOURCES)
    waits = {name: Waits() for name in LOADS}
    for (name, balancer, _), job in jobs.items():
        waits[name].runs[balancer].append([float(found[job]["wait_mean_seconds"])])
    return waits


def simulate(job: Job) -> dict[str, float]:
    """Simulate one run, and return its mean wait."""
    from headrace_engine.sim.engine import SimulatedEngine  # noqa: PLC0415  (vLLM takes its time)

    settings = EngineSettings(
        num_blocks=LIMITS.blocks,
        block_size=LIMITS.block_size,
        max_num_seqs=LIMITS.slots,
        max_num_batched_tokens=LIMITS.budget,
        max_model_len=LONGEST,
    )
    fcfs = PolicyDocument("FCFS")
    engines = [SimulatedEngine(settings, COST, fcfs, number=n, listening=True) for n in range(ENGINES)]
    boards = [engine.link for engine in engines if engine.link is not None]
    gateway = SimulatedGateway(service("chat", job.balancer, 1, 2), boards, job.run)
    requests = arrivals(job.rate, job.seconds, job.run)
    outcomes = simulate_fleet(requests, engines, gateway, seed=job.run).outcomes
    waits = [outcome.wait for outcome in outcomes if outcome is not None and outcome.wait is not None]
    return {"wait_mean_seconds": fmean(waits[int(WARM_UP * len(waits)) :])}
