"""Claims that are lost: the node that has their devices ends no pod any more, since it is dead. Pure.

A claim stays on its node as long as a pod names it that has not ended, and pods on a dead node never do:
every new pod of the claim would wait for that node. So the claim is given up, and another takes its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from math import inf
from typing import NamedTuple

from headrace_operator.api.bodies import Body, is_ending
from headrace_operator.decide.observation import has_ended

LOST_SECONDS = 60.0  # after the end of a pod's grace: a node that lives has ended it by then


class LostClaims(NamedTuple):
    """Names of claims. `due`: unix seconds when to look again; None: when something changes."""

    names: frozenset[str]
    due: float | None


def find_lost_claims(pods: Iterable[Body], now: float) -> LostClaims:
    """Find the claims all of whose pods should have ended long ago; `now`: unix seconds."""
    lost_at: defaultdict[str, list[float]] = defaultdict(list)
    for pod in pods:
        if pod["spec"].get("nodeName") and not has_ended(pod):
            for claim in claims_of(pod):
                lost_at[claim].append(_lost_at(pod))
    lost = frozenset(claim for claim, times in lost_at.items() if max(times) <= now)
    soon = [times for claim, times in lost_at.items() if claim not in lost and min(times) < inf]
    return LostClaims(lost, min((min(max(times), now + LOST_SECONDS) for times in soon), default=None))


def claims_of(pod: Body) -> set[str]:
    """Name the claims that a pod shares with others."""
    named = (each.get("resourceClaimName") for each in pod["spec"].get("resourceClaims") or ())
    return set(filter(None, named))


def _lost_at(pod: Body) -> float:
    if not is_ending(pod):
        return inf
    return datetime.fromisoformat(pod["metadata"]["deletionTimestamp"]).timestamp() + LOST_SECONDS
