"""Turns of simulated engines: the rules of the turn server and of its members, without sockets.

What an engine says is heard at once; a turn that it is given begins `hand_over` seconds later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from headrace_engine.contracts.turn_group import TurnGroup, TurnOrder
from headrace_engine.turns.member import Member
from headrace_engine.turns.messages import Kind, Message
from headrace_engine.turns.rules import LEASE_SECONDS, STARVATION_SECONDS, Turns

HAND_OVER = 0.0006  # seconds from one's last step to the next one's first, as `e2e.bench.turns` measured
Baseline = Callable[[Any], float]
"""The priority of an engine, from its vLLM scheduler: less goes first."""


class SimulatedTurns:
    """The turns of one group, in an order of the product or a baseline.

    `starvation`: seconds of waiting after which an engine goes first of all.
    """

    def __init__(
        self,
        order: TurnOrder | Baseline = "FairShare",
        starvation: float = STARVATION_SECONDS,
        hand_over: float = HAND_OVER,
    ) -> None:
        self.baseline = order if callable(order) else None
        ours: TurnOrder = "FairShare" if callable(order) else order
        self.group = TurnGroup("127.0.0.1", 1, "00" * 16, ours)  # any address: nobody connects to it
        self._rules = Turns(LEASE_SECONDS, starvation)
        self._hand_over = hand_over

    @property
    def granted(self) -> int:
        """How many turns there have been."""
        return self._rules.granted

    def take_in(self, seat: Seat, message: Message, now: float) -> None:
        """Take in what an engine says, and tell everybody concerned."""
        for other, answer in self._rules.take_in(seat, message, now):
            if isinstance(other, Seat):
                other.hear(answer, now + self._hand_over)


class Seat:
    """One engine's place in the group: the `Line` of its `Member`."""

    joined = True

    def __init__(self, turns: SimulatedTurns) -> None:
        self.waits = False  # for the turn
        self.granted_at = inf  # when it begins, if that is known
        self._turns = turns
        self._now: Callable[[], float] = lambda: 0.0
        self._wake: Callable[[float], None] = lambda _: None
        self._scheduler: Any = None
        self._heard: list[Message] = []

    def take(self, scheduler: Any, now: Callable[[], float], wake: Callable[[float], None]) -> None:
        """Take in the engine that sits here: its scheduler and clock, and how it is woken at a time."""
        self._now, self._wake, self._scheduler = now, wake, scheduler

    @property
    def group(self) -> TurnGroup:
        """The group as the engine is told of it."""
        return self._turns.group

    def join(self, group: TurnGroup, priority: Callable[[], float]) -> Member:  # noqa: ARG002
        """Make the engine's member."""
        baseline = self._turns.baseline
        asks_with = partial(baseline, self._scheduler) if baseline else priority
        return Member(self, asks_with, self._now)

    def hear(self, message: Message, at: float) -> None:
        """Take in what the server says; a turn begins at `at`."""
        self._heard.append(message)
        if message.kind is Kind.GRANT:
            self.granted_at = at
            self._wake(at)

    def send(self, message: Message) -> None:
        """Tell the server."""
        self.waits = message.kind is Kind.WANT or message.again
        if message.kind is Kind.IDLE:
            self._heard.clear()  # a grant that is on its way is for nobody
            self.granted_at = inf
        self._turns.take_in(self, message, self._now())

    def receive(self, seconds: float = 0.0) -> Sequence[Message]:  # noqa: ARG002
        """Return what has come by now; waiting is the engine's part."""
        if self.granted_at < inf:
            if self._now() < self.granted_at:
                return ()
            self.granted_at, self.waits = inf, False
        heard, self._heard = self._heard, []
        return heard

    def expect_answer(self) -> None:
        """Do nothing: the server always answers."""

    def reach(self, until: float = -inf) -> None:
        """Do nothing: it is always reached."""

    def close(self) -> None:
        """Do nothing: an engine stays until the simulation ends."""
