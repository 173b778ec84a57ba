"""One simulated plan: groups of engines with vLLM's scheduler, which take turns. In a process of its own."""

from __future__ import annotations

from collections.abc import Sequence

from headrace_engine.cost.host import server_host_time
from headrace_engine.cost.model import unloaded_seconds
from headrace_engine.sim.engine import SimulatedEngine
from headrace_engine.sim.garbage_collector import no_collector
from headrace_engine.sim.metrics import summarise_run
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.run import serve_together
from headrace_engine.sim.simulated_turns import Seat, SimulatedTurns
from headrace_engine.sim.workloads.arrival import Arrival
from headrace_operator.simulate.figures import Figures
from headrace_operator.simulate.pool.pool_jobs import Asked, PlanJob, TakingTurns
from headrace_operator.simulate.worker import list_targets, make_figures


def serve_plan(job: PlanJob) -> list[Figures | None]:
    """Serve the requests to the end; returns the figures of each service, None for one without requests."""
    served: list[list[Outcome]] = [[] for _ in job.services]
    with no_collector():
        for group in job.groups:
            for seated, outcomes in zip(group.engines, _serve_group(job.services, group), strict=True):
                served[seated.seat.service] += outcomes
    return [
        _sum_up(asked, sorted(outcomes, key=lambda outcome: outcome.arrival.at)) if outcomes else None
        for asked, outcomes in zip(job.services, served, strict=True)
    ]


def _serve_group(services: Sequence[Asked], group: TakingTurns) -> list[list[Outcome]]:
    turns = SimulatedTurns(group.order) if len(group.engines) > 1 else None
    engines = [
        SimulatedEngine(
            seated.settings,
            seated.cost,
            services[seated.seat.service].policy,
            number=number,
            host=server_host_time(seated.cost.profile.tensor_parallel),
            seat=None if turns is None else Seat(turns),
        )
        for number, seated in enumerate(group.engines)
    ]
    serve_together(
        engines, [seated.seat.take(services[seated.seat.service].arrivals) for seated in group.engines]
    )
    return [engine.outcomes for engine in engines]


def _sum_up(asked: Asked, outcomes: Sequence[Outcome]) -> Figures:
    def alone(arrival: Arrival) -> float:
        return unloaded_seconds(asked.alone, arrival.prompt_tokens, arrival.output_tokens, asked.step_tokens)

    return make_figures(summarise_run(outcomes, list_targets(asked.slo), alone), refused=0)
