"""An engine's side of turn taking: when it may compute, and what it says to the turn server.

Whoever holds the turn looks once a step whether somebody asks for it. Without a server, or cut off from it,
the engine is alone: it computes whenever it wants, and tries to reach the server again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol

from headrace_engine.turns.messages import Kind, Message


class Line(Protocol):
    """What carries messages to the turn server and back; `Connection` says what each method does."""

    @property
    def joined(self) -> bool:
        """Tell whether messages can be sent."""

    def expect_answer(self) -> None:
        """Count silence from now on."""

    def reach(self, until: float = ...) -> None:
        """Go on connecting, or begin."""

    def receive(self, seconds: float = ...) -> Sequence[Message]:
        """Return what has come; wait for it for so long."""

    def send(self, message: Message) -> None:
        """Send a message."""

    def close(self) -> None:
        """End the connection."""


class Member:
    """One engine of a group. `priority` gives what it asks with: finite, and less goes first."""

    def __init__(
        self, line: Line, priority: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._line = line
        self._priority = priority
        self._clock = clock
        self._want = 0  # number of the last wish for the turn
        self._wanted: float | None = None  # the priority that it waits with
        self._epoch = 0
        self._asked = inf  # the best priority that waits, as far as this one was told
        self.holds = False

    @property
    def alone(self) -> bool:
        """Tell whether steps are not in turns, since there is no server."""
        return not self._line.joined

    def may_step(self, seconds: float = 0.0) -> bool:
        """Tell whether a step may begin; wait for the turn for so many seconds.

        False while holding the turn: another is to have it. Release it once nothing is computed any more.
        """
        if self.holds:
            self._look()
            if self.holds:
                return self._keeps()
        until = self._clock() + seconds
        if self.alone:
            self._line.reach(until)
        if not self.alone:
            self._ask()
        while not (self.alone or self.holds):
            if not self._look(until - self._clock()):
                return self.alone
        return True

    def release(self, *, again: bool) -> None:
        """Give the turn to another; `again`: and wait for the next."""
        if self.holds:
            self.holds = False
            self._wanted = self._priority() if again else None
            self._want += 1
            wanted = 0.0 if self._wanted is None else self._wanted
            self._send(Message(Kind.RELEASE, self._epoch, wanted, self._want, again))

    def is_asked(self) -> bool:
        """Tell whether this one holds the turn, and another is to have it."""
        if self.holds:
            self._look()
        return self.holds and self._asked < inf and self._asked <= self._priority()

    def rest(self) -> None:
        """Neither hold the turn nor wait for it, since there is nothing to compute."""
        self.release(again=False)
        if self._wanted is not None:
            self._wanted = None
            self._send(Message(Kind.IDLE))

    def close(self) -> None:
        """Leave the group."""
        self._line.close()
        self.holds = False

    def _keeps(self) -> bool:
        """Tell whether nobody is to have the turn instead; the server hears of it if somebody waits."""
        if self._asked == inf:
            return True
        priority = self._priority()
        if self._asked <= priority:  # equals alternate: neither knows yet how long its requests take
            return False
        self._send(Message(Kind.KEEP, self._epoch, priority))
        return True

    def _ask(self) -> None:
        priority = self._priority()
        if priority == self._wanted:
            return
        if self._wanted is None:
            self._want += 1
            self._line.expect_answer()
        self._wanted = priority
        self._send(Message(Kind.WANT, 0, priority, self._want))

    def _look(self, seconds: float = 0.0) -> bool:
        """Take in what has come, and wait for it for so long; tells whether anything has."""
        messages = self._line.receive(seconds)
        for message in messages:
            self._take_in(message)
        self._notice_loss()
        return bool(messages)

    def _take_in(self, message: Message) -> None:
        if message.kind is Kind.GRANT:
            if message.want == self._want and self._wanted is not None:
                self.holds, self._wanted = True, None
                self._epoch, self._asked = message.epoch, message.priority
        elif message.epoch == self._epoch and self.holds:
            if message.kind is Kind.ASK:
                self._asked = message.priority
            elif message.kind is Kind.FENCED:
                self.holds = False

    def _send(self, message: Message) -> None:
        self._line.send(message)
        self._notice_loss()

    def _notice_loss(self) -> None:
        if not self._line.joined:
            self.holds, self._wanted = False, None
