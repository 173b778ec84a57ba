"""One simulation: a service's replicas behind its gateway, serving a trace. Runs in a process of its own.

The only module of the command that imports vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_engine.contracts import Slo
from headrace_engine.cost.host import server_host_time
from headrace_engine.cost.model import CostModel, scale_cost, unloaded_seconds, vary_cost
from headrace_engine.sim.engine import SimulatedEngine
from headrace_engine.sim.fleet import simulate_fleet
from headrace_engine.sim.garbage_collector import no_collector
from headrace_engine.sim.metrics import SPREAD, Targets, summarise_run
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_engine.sim.workloads.resample import resample_arrivals
from headrace_gateway.simulated import SimulatedGateway
from headrace_operator.simulate.figures import Figures, Spread
from headrace_operator.simulate.jobs import Job, World


@dataclass(frozen=True, slots=True)
class Served:
    """What became of the requests, in order of arrival; a refused one is lost."""

    outcomes: list[Outcome]
    refused: int
    cost: CostModel  # that the steps took


def run_job(world: World, job: Job) -> Figures:
    """Serve the requests to the end, as the job asks, and sum them up."""
    served = serve(world, job)

    def alone(arrival: Arrival) -> float:
        steps = world.settings.max_num_batched_tokens
        return unloaded_seconds(served.cost, arrival.prompt_tokens, arrival.output_tokens, steps)

    found = summarise_run(served.outcomes, list_targets(world.slo), alone)
    return make_figures(found, refused=served.refused)


def serve(world: World, job: Job) -> Served:
    """Serve the world's trace, or the traffic that was drawn, to the end, as the job asks."""
    arrivals: Sequence[Arrival] = world.arrivals
    cost = vary_cost(world.cost, job.mixed_attention_factor, job.overhead_seconds)
    if job.draw is not None:
        arrivals = resample_arrivals(arrivals, world.seconds, job.draw.seed)
        cost = scale_cost(cost, job.draw.step_factor)
    host = server_host_time(cost.profile.tensor_parallel)
    engines = [
        SimulatedEngine(world.settings, cost, job.policy, number=number, listening=True, host=host)
        for number in range(job.replicas)
    ]
    boards = [engine.link for engine in engines if engine.link is not None]
    gateway = SimulatedGateway(world.gateway, boards, world.seed)
    with no_collector():
        done = simulate_fleet(arrivals, engines, gateway, seed=world.seed)
    outcomes = [outcome or Outcome(arrival) for arrival, outcome in zip(arrivals, done.outcomes, strict=True)]
    return Served(outcomes, gateway.refused, cost)


def list_targets(slo: Slo) -> dict[str, Targets]:
    """Return each target alone, and all together."""
    seconds = {
        name: milliseconds / 1000
        for name, milliseconds in (("ttft", slo.ttft_ms), ("tpot", slo.tpot_ms), ("e2e", slo.e2e_ms))
        if milliseconds is not None
    }
    by_name = {name: {name: value} for name, value in seconds.items()}
    if slo.e2e_scale_percent is not None:
        by_name["e2e"] = {"e2e_scale": slo.e2e_scale_percent / 100}
    together = {key: value for each in by_name.values() for key, value in each.items()}
    return {**{name: Targets(**each) for name, each in by_name.items()}, "all": Targets(**together)}


def make_figures(found: dict[str, float], refused: int) -> Figures:
    """Make the figures of what `summarise_run` found, of which so many requests were refused."""
    return Figures(
        requests=int(found["requests"]),
        refused=refused,
        ttft=_spread(found, "ttft"),
        tpot=_spread(found, "tpot"),
        e2e=_spread(found, "e2e"),
        longest_wait=found.get("wait_max", 0.0),
        preemptions=int(found["preemptions"]),
        met={name: found[f"met_{name}"] for name in ("ttft", "tpot", "e2e", "all") if f"met_{name}" in found},
    )


def _spread(found: dict[str, float], name: str) -> Spread | None:
    if f"{name}_mean" not in found:
        return None
    return Spread(*(found[f"{name}_{which}"] for which in SPREAD))
