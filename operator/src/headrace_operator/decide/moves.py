"""Which services of a pool are moved now, from where they are to where mode Auto puts them. Pure.

One after another, each when its new place has room: GPUs that nobody has, and memory beside those that are
there. A service that moves is one that has been told to and is not settled yet, so what is seen is enough to
go on from, whoever saw it before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace_operator.decide.places import WHOLE, Place, memory_taken


@dataclass(frozen=True, slots=True)
class Mover:
    """A service that a pool places."""

    name: str
    wanted: Place | None  # None: the claim that it is to share is not there yet
    runs: Place | None  # None: it has no engines
    settled: bool  # all of its replicas are as they should be, and ready
    drains: bool = True  # one of them may end before its successor is ready
    given_up: bool = False  # it was moved there, and its engines did not start

    @property
    def arrived(self) -> bool:
        """Whether its engines were told to be where they should."""
        return self.runs is not None and self.runs == self.wanted


@dataclass(frozen=True, slots=True)
class Moves:
    """Services by name. `free`: may be as planned; all others stay as they run."""

    free: frozenset[str]
    moving: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()


NO_MOVES = Moves(frozenset())


def plan_moves(movers: Sequence[Mover], gpus: int | None) -> Moves:
    """Decide who may move; `gpus`: that all may have together, None: as many as they have or should have."""
    arrived = [each for each in movers if each.arrived]
    new = [each for each in movers if each.runs is None and each.wanted is not None]
    given_up = [each for each in movers if each.given_up and not each.arrived]
    left = [each for each in movers if not (each.arrived or each.runs is None or each.given_up)]
    moving = [each for each in arrived if not each.settled]
    chosen = []
    if left and not moving:
        budget = gpus or max(_gpus(each.runs for each in movers), _gpus(each.wanted for each in movers))
        chosen = [each for each in left if _has_room(each, movers, budget)][:1]
    free = [*arrived, *new, *given_up, *chosen]
    return Moves(
        frozenset(each.name for each in free),
        tuple(each.name for each in (*moving, *chosen)),
        tuple(each.name for each in left if each not in chosen),
        tuple(each.name for each in given_up),
    )


def _has_room(mover: Mover, movers: Sequence[Mover], gpus: int) -> bool:
    wanted = mover.wanted
    if wanted is None:
        return False
    others = [each.runs for each in movers if each is not mover and each.runs]
    if wanted.claim is not None:
        beside = [place for place in others if place.claim == wanted.claim]
        if memory_taken([wanted, *beside]) > WHOLE:
            return False
    needed = _gpus([*others, wanted] if mover.drains else [*others, wanted, mover.runs])
    return needed <= gpus or needed <= _gpus([*others, mover.runs])


def _gpus(places: Iterable[Place | None]) -> int:
    """Count the GPUs that engines have: those of a claim once."""
    shared: dict[str, int] = {}
    own = 0
    for place in filter(None, places):
        if place.claim is None:
            own += place.gpus * place.replicas
        else:
            shared[place.claim] = max(shared.get(place.claim, 0), place.gpus)
    return own + sum(shared.values())
