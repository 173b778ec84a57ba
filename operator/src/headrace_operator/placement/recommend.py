"""The plan with the fewest GPUs under which services do as well as they can, by estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace_operator.placement.problem import ATTAINMENT, SAME_SHARE, Nodes, Plan, Service
from headrace_operator.placement.score import FitsNowhereError, Scorer, Standing
from headrace_operator.placement.search import search_within


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A plan with what it comes to for each service, in order; and what today's engines come to.

    `kv_tokens`: of each group's members, in order. `today` is None where today's engines can't be estimated.
    """

    plan: Plan
    kv_tokens: tuple[tuple[int, ...], ...]
    standings: tuple[Standing, ...]
    today: tuple[Standing, ...] | None
    worse: tuple[int, ...]  # services that do neither well enough nor as well as they could

    @property
    def enough(self) -> bool:
        """Whether every service does well enough, or as well as it could."""
        return not self.worse

    @property
    def gpus(self) -> int:
        """GPUs of the groups that have members."""
        return sum(group.gpus for group in self.plan)


def recommend(
    services: Sequence[Service], today: Plan | None, nodes: Nodes, work: int, *, seed: int = 0
) -> Recommendation | None:
    """Find the plan with the fewest GPUs under which each service does well enough, or as well as it could.

    Well enough: `ATTAINMENT` of its requests are in time. As well as it could: as today, and as under the
    best plan for all of `nodes`. If none does, that plan. Each service's engines are alike. `today`: None if
    a plan can't say what there is. `work`: requests that the search for one number of GPUs may estimate. None
    if no plan has all services. Raises FitsNowhereError for a service that fits no node.
    """
    scorer = Scorer(services, nodes, alike=True)
    as_today = _standings_of(today, scorer)
    wanted = _good_enough(as_today) if as_today is not None else [0.0] * len(services)

    def attempt(gpus: int) -> Recommendation | None:
        plan = _find(scorer, nodes.first(gpus), work, seed)
        if plan is None:
            return None
        standings = tuple(scorer.standings(plan))
        return Recommendation(
            plan,
            tuple(tuple(scorer.kv_tokens(group)) for group in plan),
            standings,
            as_today,
            tuple(
                number
                for number, (each, share) in enumerate(zip(standings, wanted, strict=True))
                if each.attainment < share
            ),
        )

    best = attempt(nodes.total_gpus)
    if best is None or not best.enough:
        return best
    wanted = list(map(max, wanted, _good_enough(best.standings)))
    too_few = 0
    while too_few < best.gpus - 1:
        gpus = (too_few + best.gpus) // 2
        found = attempt(gpus)
        if found is not None and found.enough:
            best = found
        else:
            too_few = gpus
    return best


def _good_enough(standings: Sequence[Standing]) -> list[float]:
    """Return what share of each service's requests is to be in time, for it to do no worse than so."""
    return [min(ATTAINMENT, each.attainment) - SAME_SHARE for each in standings]


def _standings_of(plan: Plan | None, scorer: Scorer) -> tuple[Standing, ...] | None:
    if plan is not None and all(scorer.fits(group) for group in plan):
        return tuple(scorer.standings(plan))
    return None


def _find(scorer: Scorer, nodes: Nodes, work: int, seed: int) -> Plan | None:
    """Search for a plan with all services; its groups that have members."""
    try:
        scorer = scorer.on(nodes)
    except FitsNowhereError:
        return None
    found = search_within(scorer, work, seed=seed)
    if found.score.unplaced:
        return None
    return tuple(group for group in found.plan if group.members)
