"""Whose turn it is: the rules of a turn server, without sockets and without a clock of their own.

- The turn goes to whoever waits with the least priority value, equals to who has waited longest; but whoever
  has waited for `starvation` goes first of all, the longest waiting first.
- The holder is told of the best that waits, and decides itself when to give way: it does unless its own value
  is less.
- A turn that others wait for ends after `lease` without a word from its holder, and for one that starves in
  any case. Whose turn was ended is passed over until it speaks: one that hangs costs one lease, not one a
  turn.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from headrace_engine.turns.messages import Kind, Message

LEASE_SECONDS = 2.0  # longer than any step
STARVATION_SECONDS = 1.0

Member = Hashable
Sent = list[tuple[Member, Message]]

STARVED = -inf  # the priority of who has waited for too long


class Waiting(NamedTuple):
    """A member that waits: its priority and its wish's number, since when, and how many began to before."""

    priority: float
    want: int
    since: float
    number: int


@dataclass(slots=True)
class Turn:
    """The turn that somebody has. `told`: the best priority that its holder knows to wait; inf: none."""

    holder: Member
    epoch: int
    told: float
    due: float  # when it ends unless its holder speaks; inf while nobody waits
    ends: float = inf  # when it ends whatever its holder says


class Turns:
    """The turns of one group. Times are seconds of one clock; each call returns what is to be sent to whom.

    `lease`: longer than any step. `starvation`: how long a member waits until it goes first. `epoch`: number
    of the first turn, higher than any that members may know from an earlier server.
    """

    def __init__(self, lease: float, starvation: float, epoch: int = 0) -> None:
        self._lease = lease
        self._starvation = starvation
        self._epoch = epoch
        self._waiting: dict[Member, Waiting] = {}
        self._number = 0
        self._hung: set[Member] = set()
        self._turn: Turn | None = None
        self.granted = 0
        self.fenced = 0

    @property
    def holder(self) -> Member | None:
        """Who has the turn."""
        return None if self._turn is None else self._turn.holder

    @property
    def concerned(self) -> set[Member]:
        """Who holds the turn or waits for it: the others need not know whether the server lives."""
        return {*self._waiting, self.holder} - {None}

    def take_in(self, member: Member, message: Message, now: float) -> Sent:
        """Take in what a member says."""
        self._hung.discard(member)
        turn = self._turn
        holds = turn is not None and turn.holder == member
        current = turn is not None and holds and message.epoch == turn.epoch
        if message.kind is Kind.IDLE:
            self._waiting.pop(member, None)
            if holds:  # the grant and this have crossed
                self._turn = None
        elif message.kind is Kind.WANT and not holds:
            self._wait(member, message, now)
        elif message.kind is Kind.KEEP and current and turn is not None and turn.due < inf:
            turn.due = now + self._lease
        elif message.kind is Kind.RELEASE:
            if current:
                self._turn = None
            if message.again and (current or not holds):
                self._wait(member, message, now)
        return self._settle(now)

    def leave(self, member: Member, now: float) -> Sent:
        """Take in that a member is gone."""
        self._waiting.pop(member, None)
        self._hung.discard(member)
        if self.holder == member:
            self._turn = None
        return self._settle(now)

    def tick(self, now: float) -> Sent:
        """Take in that time has passed."""
        turn = self._turn
        if turn is None or now <= min(turn.due, turn.ends) or not self._ready():
            return self._settle(now)
        self._hung.add(turn.holder)
        self._turn = None
        self.fenced += 1
        return [(turn.holder, Message(Kind.FENCED, turn.epoch)), *self._settle(now)]

    def _wait(self, member: Member, message: Message, now: float) -> None:
        known = self._waiting.get(member)
        if known is None:
            self._number += 1
            known = Waiting(0.0, 0, now, self._number)
        self._waiting[member] = known._replace(priority=message.priority, want=message.want)

    def _settle(self, now: float) -> Sent:
        """Grant the turn if nobody has it; tell its holder of a better one that waits."""
        turn = self._turn
        if turn is None:
            return self._grant(now)
        _, best = self._best(now)
        if best >= turn.told:
            return []
        if turn.due == inf:
            turn.due = now + self._lease
        if best == STARVED:
            turn.ends = now + self._lease
        turn.told = best
        return [(turn.holder, Message(Kind.ASK, turn.epoch, best))]

    def _grant(self, now: float) -> Sent:
        if not self._ready():
            self._hung.clear()  # only those wait that hung: they keep nobody from computing
        member, _ = self._best(now)
        if member is None:
            return []
        want = self._waiting.pop(member).want
        _, second = self._best(now)
        self._epoch += 1
        self.granted += 1
        due = now + self._lease if second < inf else inf
        self._turn = Turn(member, self._epoch, second, due, due if second == STARVED else inf)
        return [(member, Message(Kind.GRANT, self._epoch, second, want))]

    def _ready(self) -> bool:
        return not self._waiting.keys() <= self._hung

    def _best(self, now: float) -> tuple[Member | None, float]:
        """Return who goes next and with which priority; nobody and inf if none waits."""
        found: Member | None = None
        least = (inf, inf)
        for member, (priority, _, since, number) in self._waiting.items():
            if member in self._hung:
                continue
            order = (STARVED if now - since >= self._starvation else priority, number)
            if order < least:
                found, least = member, order
        return found, least[0]
