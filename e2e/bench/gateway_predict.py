"""What the simulated fleet says of the same requests: vLLM's scheduler, the gateway's own code, no Envoy."""

from collections.abc import Callable

from e2e.bench.gateway_settings import BALANCERS, COST, ENGINES, LIMITS, LONGEST, arrivals, service
from e2e.bench.gateway_waits import LOADS, WARM_UP, Waits
from headrace_engine.contracts import PolicyDocument
from headrace_engine.contracts.gateway_config import Balancer
from headrace_engine.sim.fleet import simulate_fleet
from headrace_engine.sim.settings import EngineSettings
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_sidecar.simulated import SimulatedGateway

Say = Callable[[str], None]


def predict(rate: float, runs: int, seconds: float, say: Say) -> dict[str, Waits]:
    """Simulated waits by load, for engines that were measured to do `rate` requests/s."""
    waits = {name: Waits() for name in LOADS}
    for run in range(runs):
        for name, load in LOADS.items():
            requests = arrivals(load * rate * ENGINES, seconds, run)
            for balancer in BALANCERS:
                waits[name].runs[balancer].append(_waits(requests, balancer, run))
            means = (f"{b} {1000 * waits[name].means(b)[-1]:.1f}" for b in BALANCERS)
            say(f"  simulated run {run + 1}, load {load}: mean wait in ms: {', '.join(means)}")
    return waits


def _waits(requests: list[Arrival], balancer: Balancer, seed: int) -> list[float]:
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
    gateway = SimulatedGateway(service("chat", balancer, 1, 2), boards, seed)
    outcomes = simulate_fleet(requests, engines, gateway, seed=seed).outcomes
    waits = [outcome.wait for outcome in outcomes if outcome is not None]
    return [wait for wait in waits[int(WARM_UP * len(waits)) :] if wait is not None]
