"""The search for a plan: from SeaLLM's for each size of group on to better ones near the best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import Random

from headrace_operator.placement.greedy import allocate, place_largest_first
from headrace_operator.placement.local_search import neighbours
from headrace_operator.placement.problem import Plan, sizes_up_to
from headrace_operator.placement.score import Score, Scorer

MOST_MEMBERS = 2  # of a group, as in SeaLLM (appendix A.2)
SHAKES = 50  # times that a plan which no change betters is left by some changes at random
SHAKE_CHANGES = 3
NO_PLAN = Score(inf, inf, inf)


@dataclass(frozen=True, slots=True)
class Found:
    """The best plan so far, and its score."""

    plan: Plan = ()
    score: Score = NO_PLAN


def search(
    scorer: Scorer,
    out_of_time: Callable[[], bool],
    *,
    seed: int = 0,
    most_members: int = MOST_MEMBERS,
    improve: bool = True,
) -> Found:
    """Find a plan; the best that is known once `out_of_time` says so, `Found()` if none is.

    Without `improve` it is SeaLLM's own. Same problem, same seed, same time: same plan. It may leave services
    without an engine, where it finds no room for all.
    """
    best = Found()
    if improve and not out_of_time():
        best = _better(best, place_largest_first(scorer, most_members), scorer)
    for size in sizes_up_to(scorer.nodes.most_gpus):
        for plan in allocate(scorer, size, most_members, out_of_time):
            best = _better(best, plan, scorer)
    if improve:
        best = _improve(best, scorer, most_members, Random(seed), out_of_time)  # noqa: S311  (no secret)
    return best


def search_within(scorer: Scorer, work: int, *, seed: int = 0, most_members: int = MOST_MEMBERS) -> Found:
    """Search until `work` more requests were estimated: that finds the same plan on any machine."""
    limit = scorer.estimated + work
    return search(scorer, lambda: scorer.estimated > limit, seed=seed, most_members=most_members)


def _better(best: Found, plan: Plan, scorer: Scorer) -> Found:
    score = scorer.score(plan)
    return Found(plan, score) if score < best.score else best


def _improve(
    start: Found, scorer: Scorer, most_members: int, random: Random, out_of_time: Callable[[], bool]
) -> Found:
    """Find a plan that no single change betters, and leave it for others as long as there is time."""
    best = _climb(start, scorer, most_members, random, out_of_time)
    for _ in range(SHAKES):
        if out_of_time():
            break
        shaken = best.plan
        for _ in range(SHAKE_CHANGES):
            shaken = next(neighbours(shaken, scorer, most_members, random), shaken)
        found = _climb(Found(shaken, scorer.score(shaken)), scorer, most_members, random, out_of_time)
        if found.score < best.score:
            best = found
    return best


def _climb(
    found: Found, scorer: Scorer, most_members: int, random: Random, out_of_time: Callable[[], bool]
) -> Found:
    """Take the first change that is for the better, until none is or time is out."""
    improved = True
    while improved:
        improved = False
        for plan in neighbours(found.plan, scorer, most_members, random):
            if out_of_time():
                return found
            score = scorer.score(plan)
            if score < found.score:
                found, improved = Found(plan, score), True
                break
    return found
