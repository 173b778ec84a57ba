"""An engine's side of turn taking: a connection without a thread, of which no call blocks for long.

Whoever holds the turn looks at its socket once a step. Without a server, or cut off from it, the engine is
alone: it computes whenever it wants, and tries to reach the server again.
"""

from __future__ import annotations

import ctypes
import logging
import math
import select
import socket
import time
from collections.abc import Callable
from enum import Enum, auto
from math import inf

from headrace_engine.contracts.turn_group import TurnGroup
from headrace_engine.turns.messages import (
    MESSAGE_BYTES,
    NONCE_BYTES,
    Kind,
    MalformedError,
    Message,
    pack,
    sign,
    unpack,
)

log = logging.getLogger("vllm.headrace")

AGAIN_SECONDS = 0.2  # between two tries to reach the server
CONNECT_SECONDS = 1.0  # that one try may take; steps go on meanwhile, but for the first of these:
WAITED_SECONDS = 0.01
SILENCE_SECONDS = 1.5  # of a server that should have spoken: three of its pings
READ_BYTES = 1 << 16

# Keeps Python's lock through a call, as `select` does not: to look whether somebody asked takes a
# microsecond, and another thread that took the lock meanwhile would hold the step up for hundreds.
_libc = ctypes.PyDLL(None)


class _PollFd(ctypes.Structure):
    """The `struct pollfd` of poll(2)."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class _Link(Enum):
    NONE = auto()
    CONNECTING = auto()
    GREETED = auto()  # the server's nonce is still to come
    JOINED = auto()


class Member:
    """One engine of a group. `priority` gives what it asks with: finite, and less goes first."""

    def __init__(
        self, group: TurnGroup, priority: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._group = group
        self._priority = priority
        self._clock = clock
        self._heard = 0.0  # when it last spoke, or was spoken to by one that it owes an answer
        self._unread = b""
        self._want = 0  # number of the last wish for the turn
        self._wanted: float | None = None  # the priority that it waits with
        self._epoch = 0
        self._asked = inf  # the best priority that waits, as far as this one was told
        self.holds = False
        self._connect()
        self._reach(inf)

    @property
    def alone(self) -> bool:
        """Tell whether steps are not in turns, since there is no server."""
        return self._link is not _Link.JOINED

    def may_step(self, seconds: float = 0.0) -> bool:
        """Tell whether a step may begin; wait for the turn for so many seconds.

        False while holding the turn: another is to have it. Release it once nothing is computed any more.
        """
        if self.holds:
            self._look()
            if self.holds:
                if self._clock() - self._heard <= SILENCE_SECONDS:
                    return self._keeps()
                self._drop("it is silent")
        until = self._clock() + seconds
        if self.alone:
            self._reach(until)
        if not self.alone:
            self._ask()
        while not (self.alone or self.holds):
            left = until - self._clock()
            self._look(left)
            if self.holds:
                break
            if self._clock() - self._heard > SILENCE_SECONDS:
                self._drop("it is silent")
            elif left <= 0:
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
        self._socket.close()
        self._link, self.holds = _Link.NONE, False

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
            self._heard = self._clock()
        self._wanted = priority
        self._send(Message(Kind.WANT, 0, priority, self._want))

    def _look(self, seconds: float = 0.0) -> None:
        """Read what has come, and wait for it for so long."""
        if seconds > 0:
            if not self._poll.poll(math.ceil(seconds * 1000)):
                return
        elif not _libc.poll(ctypes.byref(self._readable), 1, 0):
            return
        data = self._read(READ_BYTES)
        if not data:
            return
        self._heard = self._clock()
        data = self._unread + data
        whole = len(data) - len(data) % MESSAGE_BYTES
        self._unread = data[whole:]
        try:
            for message in unpack(data[:whole], to_server=False):
                self._take_in(message)
        except MalformedError as error:
            self._drop(str(error))

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
        self._write(pack(message))

    def _read(self, most: int) -> bytes:
        """Return what has come, of at most so many bytes; nothing, too, once the connection is lost."""
        try:
            data = self._socket.recv(most)
        except BlockingIOError:
            return b""
        except OSError as error:
            self._drop(str(error))
            return b""
        if not data:
            self._drop("it closed the connection")
        return data

    def _write(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except OSError as error:
            self._drop(str(error))

    def _reach(self, until: float = -inf) -> None:
        """Go on connecting, or begin."""
        now = self._clock()
        if self._link is _Link.NONE:
            if now - self._tried < AGAIN_SECONDS:
                return
            self._connect()
        elif now - self._tried > CONNECT_SECONDS:
            self._drop("it does not answer")
            return
        while self._link in {_Link.CONNECTING, _Link.GREETED}:
            left = min(until, self._tried + WAITED_SECONDS) - self._clock()
            if not self._poll.poll(max(0.0, left) * 1000):
                return
            if self._link is _Link.CONNECTING:
                self._greet()
            else:
                self._join()

    def _connect(self) -> None:
        self._tried = self._clock()  # when the server was last tried to be reached
        made = socket.socket(socket.AF_INET6 if ":" in self._group.host else socket.AF_INET)
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll = select.poll()
        self._poll.register(made, select.POLLOUT)
        self._socket, self._link = made, _Link.CONNECTING
        made.connect_ex((self._group.host, self._group.port))  # how it went is asked by `_greet`

    def _greet(self) -> None:
        """Take in that the connection is made, or can't be."""
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self._drop(OSError(error, "").strerror or str(error))
            return
        self._poll.modify(self._socket, select.POLLIN)
        self._readable = _PollFd(self._socket.fileno(), select.POLLIN)
        self._link, self._unread = _Link.GREETED, b""

    def _join(self) -> None:
        """Take in the server's nonce, and sign it."""
        self._unread += self._read(NONCE_BYTES - len(self._unread))
        if len(self._unread) == NONCE_BYTES:
            self._link = _Link.JOINED
            nonce, self._unread = self._unread, b""
            log.info("headrace: takes turns with its group")
            self._write(sign(self._group.secret, nonce))

    def _drop(self, why: str) -> None:
        if self._link is _Link.JOINED:
            log.warning("headrace: no turns until the turn server is back: %s", why)
        self._socket.close()
        self._link, self.holds, self._wanted = _Link.NONE, False, None
        self._tried = self._clock()
