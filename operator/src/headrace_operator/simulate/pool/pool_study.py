"""Today's engines beside better plans for the same GPUs, and beside the fewest GPUs that do as well.

Plans are found by estimates (`headrace_operator.placement`), and what they come to is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace_engine.contracts.turn_group import TurnOrder
from headrace_operator.api import GPUPool, policy_document
from headrace_operator.placement.problem import ATTAINMENT, SAME_SHARE, Nodes, Seat, deal
from headrace_operator.placement.score import FitsNowhereError, Scorer
from headrace_operator.placement.search import MOST_MEMBERS, Found, search_within
from headrace_operator.simulate.candidates import make_simulated
from headrace_operator.simulate.figures import Figures
from headrace_operator.simulate.pool.pool_jobs import Asked, PlanJob, Seated, TakingTurns
from headrace_operator.simulate.pool.pool_service import PoolService
from headrace_operator.simulate.pool.pool_traces import PoolStretch
from headrace_operator.simulate.replicas import find_fewest
from headrace_operator.simulate.usage_error import UsageError

WORK = 400_000  # requests that one search may estimate, some ten seconds: the same plan on any machine

SimulatePlans = Callable[[Sequence[PlanJob], str], list[list[Figures | None]]]
"""Simulates plans, several at a time; what they are for is told to the user. Figures are by service."""


class Engine(NamedTuple):
    """An engine of a plan: its service (a number), and the tokens of its KV cache."""

    service: int
    kv_tokens: int


class Placed(NamedTuple):
    """Engines that share so many GPUs by turns, or one that has them to itself."""

    gpus: int
    engines: tuple[Engine, ...]
    order: TurnOrder = "FairShare"


@dataclass(frozen=True, slots=True)
class SimulatedPlan:
    """A plan, and what each service's requests come to: None for a service that is asked nothing."""

    groups: tuple[Placed, ...]
    figures: tuple[Figures | None, ...]

    @property
    def gpus(self) -> int:
        """GPUs that have an engine."""
        return sum(group.gpus for group in self.groups)

    @property
    def shares(self) -> bool:
        """Whether any services share GPUs."""
        return any(len(group.engines) > 1 for group in self.groups)


@dataclass(frozen=True, slots=True)
class PoolStudy:
    """Everything in it is simulated. A plan is None where the search found none that is any good."""

    today: SimulatedPlan
    alone: SimulatedPlan | None  # each service on GPUs of its own
    shared: SimulatedPlan | None
    fewest_alone: SimulatedPlan | None  # with fewer GPUs, and every service as well as today
    fewest_shared: SimulatedPlan | None


def run_study(
    simulate: SimulatePlans,
    services: Sequence[PoolService],
    today: Sequence[Placed],
    stretch: PoolStretch,
    nodes: Nodes,
    *,
    seed: int,
) -> PoolStudy:
    """Find plans for `nodes` and for fewer GPUs, and simulate them beside today's engines.

    Raises FitsNowhereError.
    """
    scorer = Scorer(
        [service.as_placed(arrivals) for service, arrivals in zip(services, stretch.arrivals, strict=True)],
        nodes,
    )
    planner = _Planner(simulate, services, stretch, scorer, seed)
    alone, shared = (planner.place(planner.find(nodes, most)) for most in (1, MOST_MEMBERS))
    plans = list(dict.fromkeys(groups for groups in (tuple(today), alone, shared) if groups))
    simulated = dict(zip(plans, planner.simulate(plans, "plans"), strict=True))
    as_today = simulated[tuple(today)]
    return PoolStudy(
        today=as_today,
        alone=simulated.get(alone),
        shared=simulated.get(shared),
        fewest_alone=planner.find_fewest(as_today, 1),
        fewest_shared=planner.find_fewest(as_today, MOST_MEMBERS),
    )


def list_todays(services: Sequence[PoolService], pools: Sequence[GPUPool]) -> list[Placed]:
    """List today's engines: those of a pool's group together, the others on GPUs of their own.

    Raises UsageError for a group that can't be simulated.
    """
    numbers = {service.name: number for number, service in enumerate(services)}
    groups = [group for pool in pools for group in pool.groups]
    found = []
    for group in groups:
        missing = [name for name in group.members if name not in numbers]
        if missing:
            raise UsageError(
                f"group {group.name}: no LLMService {', '.join(missing)} in the file; put it in, or take it "
                "out of the group"
            )
        members = [numbers[name] for name in group.members]
        sizes = {services[number].gpus for number in members}
        if len(sizes) > 1:
            listed = ", ".join(map(str, sorted(sizes)))
            raise UsageError(
                f"group {group.name}: its members have tensorParallelSize {listed}; only groups whose "
                "members are split over the same GPUs can be simulated: take it out of the file, and each is "
                "simulated on GPUs of its own"
            )
        engines = tuple(engine for number in members for engine in _engines(number, services[number]))
        found.append(Placed(sizes.pop(), engines, group.turn_order))
    together = {name for group in groups for name in group.members}
    for number, service in enumerate(services):
        if service.name not in together:
            found += [Placed(service.gpus, (engine,)) for engine in _engines(number, service)]
    return found


def _engines(number: int, service: PoolService) -> list[Engine]:
    settings = service.engine.settings
    return [Engine(number, settings.num_blocks * settings.block_size)] * service.replicas


@dataclass(frozen=True, slots=True)
class _Planner:
    """Finds plans and simulates them."""

    _simulate: SimulatePlans
    services: Sequence[PoolService]
    stretch: PoolStretch
    scorer: Scorer
    seed: int

    def find(self, nodes: Nodes, most_members: int) -> Found:
        """Search for a plan for `nodes`; `Found()` where a service fits no node."""
        try:
            scorer = self.scorer.on(nodes)
        except FitsNowhereError:
            return Found()
        return search_within(scorer, WORK, seed=self.seed, most_members=most_members)

    def place(self, found: Found) -> tuple[Placed, ...]:
        """List a plan's groups that have members, with their KV; none if it leaves a service out."""
        if found.score.unplaced:
            return ()
        return tuple(
            Placed(
                group.gpus,
                tuple(map(Engine, group.members, self.scorer.kv_tokens(group))),
            )
            for group in found.plan
            if group.members
        )

    def find_fewest(self, today: SimulatedPlan, most_members: int) -> SimulatedPlan | None:
        """Find the plan with the fewest GPUs, fewer than today's, under which every service does as well.

        The estimates say where to begin; what is simulated decides.
        """
        wanted = [
            1.0 if each is None else min(ATTAINMENT, each.met["all"]) - SAME_SHARE for each in today.figures
        ]
        enough: dict[int, tuple[Placed, ...]] = {}

        def is_enough(gpus: int) -> bool:
            found = self.find(self.scorer.nodes.first(gpus), most_members)
            groups = self.place(found)
            if groups and all(
                standing.attainment >= share
                for standing, share in zip(self.scorer.standings(found.plan), wanted, strict=True)
            ):
                enough[gpus] = groups
            return gpus in enough

        most = min(today.gpus - 1, self.scorer.nodes.total_gpus)
        fewest = find_fewest(lambda numbers: [is_enough(each) for each in numbers], most, most, 1)
        for gpus in range(fewest or most + 1, most + 1):
            if gpus not in enough and not is_enough(gpus):
                continue
            [plan] = self.simulate([enough[gpus]], f"on {gpus} GPUs")
            if all(
                each is None or each.met["all"] >= share
                for each, share in zip(plan.figures, wanted, strict=True)
            ):
                return plan
        return None

    def simulate(self, plans: Sequence[tuple[Placed, ...]], what: str) -> list[SimulatedPlan]:
        """Simulate plans."""
        jobs = [self._job(groups) for groups in plans]
        return [
            SimulatedPlan(groups, tuple(figures))
            for groups, figures in zip(plans, self._simulate(jobs, what), strict=True)
        ]

    def _job(self, groups: Sequence[Placed]) -> PlanJob:
        asked = tuple(
            Asked(
                arrivals,
                make_simulated(policy_document(service.service)),
                service.slo,
                service.costs[size],
                service.engine.settings.max_num_batched_tokens,
            )
            for service, arrivals, size in zip(
                self.services, self.stretch.arrivals, self.scorer.fewest, strict=True
            )
        )
        dealt = deal([[engine.service for engine in group.engines] for group in groups])
        taking_turns = []
        for group, seats in zip(groups, dealt, strict=True):
            engines = (
                self._seat(group.gpus, seat, engine)
                for seat, engine in zip(seats, group.engines, strict=True)
            )
            taking_turns.append(TakingTurns(tuple(engines), group.order))
        return PlanJob(asked, tuple(taking_turns))

    def _seat(self, gpus: int, seat: Seat, engine: Engine) -> Seated:
        service = self.services[engine.service]
        return Seated(seat, service.settings_with(engine.kv_tokens), service.costs[gpus])
