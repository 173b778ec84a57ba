"""Which services of a pool are moved now, from where they are to where mode Auto puts them. Pure.

One after another, each when its new place has room: GPUs that nobody has, and memory beside those that are
there. Its new engines start beside the old ones where there is room for both; else an old one ends first, if
the service allows that. Where two would change places and nobody has room, one of them has no engines until
the other has moved.

A service that moves is one that has been told to and is not settled yet, and one that has no engines has a
Deployment without replicas, so what is seen is enough to go on from, whoever saw it before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headrace_operator.decide.places import WHOLE, Place, memory_taken


@dataclass(frozen=True, slots=True)
class Mover:
    """A service that a pool places."""

    name: str
    wanted: Place | None  # None: the claim that it is to share is not there yet
    runs: Place | None  # None: it has no Deployment
    settled: bool  # all of its replicas are as they should be, and ready, and no other still ends
    max_unavailable: int = 1  # replicas that may end before their successors are ready
    surges: bool = False  # it was told to start the next before one ends
    given_up: bool = False  # it was moved there, and its engines did not start

    @property
    def arrived(self) -> bool:
        """Whether its engines were told to be where they should."""
        return self.runs is not None and self.runs == self.wanted

    @property
    def is_down(self) -> bool:
        """Whether it has no engines because others are to move first."""
        return self.runs is not None and not self.runs.replicas and not self.arrived

    @property
    def may_be_down(self) -> bool:
        """Whether all of its engines may end before any successor is ready."""
        return self.runs is not None and 0 < self.runs.replicas <= self.max_unavailable


@dataclass(frozen=True, slots=True)
class Moves:
    """Services by name. `free`: may be as planned; all others stay where they run."""

    free: frozenset[str]
    moving: tuple[str, ...] = ()
    surging: frozenset[str] = frozenset()  # of those that move: start before the old engines end
    waiting: tuple[str, ...] = ()
    down: frozenset[str] = frozenset()  # of those that wait: have no engines until then
    given_up: tuple[str, ...] = ()

    def place_meanwhile(self, name: str, runs: Place, replicas: int) -> Place:
        """Return where the engines of a service are that is not free yet; `replicas`: that it should have."""
        return runs._replace(replicas=0 if name in self.down else runs.replicas or replicas)


NO_MOVES = Moves(frozenset())


def plan_moves(movers: Sequence[Mover], gpus: int | None) -> Moves:
    """Decide who may move; `gpus`: that all may have together, None: as many as they have or should have."""
    arrived = [each for each in movers if each.arrived]
    new = [each for each in movers if each.runs is None and each.wanted is not None]
    given_up = [each for each in movers if each.given_up and not each.arrived]
    left = [each for each in movers if not (each.arrived or each.runs is None or each.given_up)]
    moving = [each for each in arrived if not each.settled]
    surging = [each for each in moving if each.surges]
    down = [each for each in left if each.is_down]
    if left and not moving and all(each.settled for each in down):
        budget = gpus or max(_gpus(map(_before, movers)), _gpus(each.wanted for each in movers))
        ordered = sorted(left, key=lambda each: not each.is_down)
        if beside := _first(each for each in ordered if _has_room(each, movers, budget, surges=True)):
            moving = surging = [beside]
        elif instead := _first(each for each in ordered if _has_room(each, movers, budget)):
            moving = [instead]
        else:
            ending = _first(each for each in left if _makes_room(each, left, movers, budget))
            down = [*down, ending] if ending else []
    free = [*arrived, *new, *given_up, *moving]
    waiting = [each for each in left if each not in moving]
    return Moves(
        free=frozenset(each.name for each in free),
        moving=tuple(each.name for each in moving),
        surging=frozenset(each.name for each in surging),
        waiting=tuple(each.name for each in waiting),
        down=frozenset(each.name for each in down if each in waiting),
        given_up=tuple(each.name for each in given_up),
    )


def _has_room(mover: Mover, movers: Sequence[Mover], gpus: int, *, surges: bool = False) -> bool:
    """Tell whether a service has room where it goes; `surges`: beside those of its engines that are left."""
    wanted, runs = mover.wanted, mover.runs
    if wanted is None or runs is None or not (surges or mover.is_down or mover.max_unavailable):
        return False
    others = [each.runs for each in movers if each is not mover and each.runs]
    own = [[wanted]]
    if surges:
        own = [[runs, wanted._replace(replicas=1)], [runs._replace(replicas=1), wanted]]
    during = [[*others, *each] for each in own]
    if wanted.claim is not None and max(_memory(wanted.claim, places) for places in during) > WHOLE:
        return False
    needed = max(map(_gpus, during))
    return needed <= gpus or needed <= _gpus([*others, runs])


def _makes_room(ending: Mover, left: Sequence[Mover], movers: Sequence[Mover], gpus: int) -> bool:
    """Tell whether another of those left could move if a service had no engines, and all fit in the end."""
    if ending.runs is None or not ending.may_be_down or not _all_fit(movers, gpus):
        return False
    ended = replace(ending, runs=ending.runs._replace(replicas=0))
    then = [ended if each is ending else each for each in movers]
    return any(_has_room(each, then, gpus) for each in left if each is not ending)


def _all_fit(movers: Sequence[Mover], gpus: int) -> bool:
    """Tell whether there is room for all once all have moved who can."""
    places = [each.runs if each.given_up else each.wanted for each in movers]
    there = [place for place in places if place is not None]
    claims = {place.claim for place in there if place.claim}
    return (
        len(there) == len(places)
        and _gpus(there) <= gpus
        and all(_memory(claim, there) <= WHOLE for claim in claims)
    )


def _before(mover: Mover) -> Place | None:
    """Return where a service ran before it came to have no engines; where it runs if it has some."""
    if mover.runs is None or mover.wanted is None or not mover.is_down:
        return mover.runs
    return mover.runs._replace(replicas=mover.wanted.replicas)


def _memory(claim: str, places: Iterable[Place]) -> int:
    return memory_taken(place for place in places if place.claim == claim)


def _first(movers: Iterable[Mover]) -> Mover | None:
    return next(iter(movers), None)


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
