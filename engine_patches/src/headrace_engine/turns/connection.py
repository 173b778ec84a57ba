"""An engine's connection to the turn server: non-blocking, without a thread.

Lost or not there yet, it is made again while the engine works: see `reach`.
"""

from __future__ import annotations

import ctypes
import logging
import math
import select
import socket
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from math import inf

from headrace_engine.contracts.turn_group import TurnGroup
from headrace_engine.turns.member import Member
from headrace_engine.turns.messages import (
    MESSAGE_BYTES,
    NONCE_BYTES,
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

JoinGroup = Callable[[TurnGroup, Callable[[], float]], Member]
"""How an engine becomes a member of its group: `join_group`, but for engines that are simulated."""

# Keeps Python's lock through a call, as `select` does not: to look whether somebody asked takes a
# microsecond, and another thread that took the lock meanwhile would hold the step up for hundreds.
_libc = ctypes.PyDLL(None)


class _PollFd(ctypes.Structure):
    """The `struct pollfd` of poll(2)."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class _State(Enum):
    LOST = auto()
    CONNECTING = auto()
    GREETED = auto()  # the server's nonce is still to come
    JOINED = auto()


class Connection:
    """One engine's to the server of `group`."""

    def __init__(self, group: TurnGroup, clock: Callable[[], float] = time.monotonic) -> None:
        self._group = group
        self._clock = clock
        self._heard = 0.0  # when the server last spoke, or began to owe an answer
        self._unread = b""
        self._state = _State.LOST
        self._socket: socket.socket
        self._connect()
        self.reach(inf)

    @property
    def joined(self) -> bool:
        """Tell whether messages can be sent."""
        return self._state is _State.JOINED

    def expect_answer(self) -> None:
        """Count silence from now on."""
        self._heard = self._clock()

    def reach(self, until: float = -inf) -> None:
        """Go on connecting, or begin; waits a moment for it, to `until` on its clock at most."""
        now = self._clock()
        if self._state is _State.LOST:
            if now - self._tried < AGAIN_SECONDS:
                return
            self._connect()
        elif now - self._tried > CONNECT_SECONDS:
            self._lose("it does not answer")
            return
        while self._state in {_State.CONNECTING, _State.GREETED}:
            left = min(until, self._tried + WAITED_SECONDS) - self._clock()
            if not self._poll.poll(max(0.0, left) * 1000):
                return
            if self._state is _State.CONNECTING:
                self._greet()
            else:
                self._join()

    def receive(self, seconds: float = 0.0) -> Sequence[Message]:
        """Return what has come; waits for it for so long. Nothing, too, once the connection is lost.

        It is lost as well when the server has been silent for so long that it must hang.
        """
        data = self._read(READ_BYTES) if self._has_come(seconds) else b""
        if not data:
            if self.joined and self._clock() - self._heard > SILENCE_SECONDS:
                self._lose("it is silent")
            return ()
        self._heard = self._clock()
        data = self._unread + data
        whole = len(data) - len(data) % MESSAGE_BYTES
        self._unread = data[whole:]
        try:
            return list(unpack(data[:whole], to_server=False))
        except MalformedError as error:
            self._lose(str(error))
            return ()

    def send(self, message: Message) -> None:
        """Send a message, or lose the connection."""
        self._write(pack(message))

    def close(self) -> None:
        """End the connection."""
        self._socket.close()
        self._state = _State.LOST

    def _lose(self, why: str) -> None:
        """Give the connection up; `reach` makes it again."""
        if self._state is _State.JOINED:
            log.warning("headrace: no turns until the turn server is back: %s", why)
        self.close()
        self._tried = self._clock()

    def _has_come(self, seconds: float) -> bool:
        """Tell whether there is something to read; wait for it for so long."""
        if seconds > 0:
            return bool(self._poll.poll(math.ceil(seconds * 1000)))
        return bool(_libc.poll(ctypes.byref(self._readable), 1, 0))

    def _connect(self) -> None:
        self._tried = self._clock()  # when the server was last tried to be reached
        made = socket.socket(socket.AF_INET6 if ":" in self._group.host else socket.AF_INET)
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll = select.poll()
        self._poll.register(made, select.POLLOUT)
        self._socket, self._state = made, _State.CONNECTING
        made.connect_ex((self._group.host, self._group.port))  # how it went is asked by `_greet`

    def _greet(self) -> None:
        """Take in that the connection is made, or can't be."""
        error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self._lose(OSError(error, "").strerror or str(error))
            return
        self._poll.modify(self._socket, select.POLLIN)
        self._readable = _PollFd(self._socket.fileno(), select.POLLIN)
        self._state, self._unread = _State.GREETED, b""

    def _join(self) -> None:
        """Take in the server's nonce, and sign it."""
        self._unread += self._read(NONCE_BYTES - len(self._unread))
        if len(self._unread) == NONCE_BYTES:
            self._state = _State.JOINED
            nonce, self._unread = self._unread, b""
            log.info("headrace: takes turns with its group")
            self._write(sign(self._group.secret, nonce))

    def _read(self, most: int) -> bytes:
        """Return what has come, of at most so many bytes; nothing, too, once the connection is lost."""
        try:
            data = self._socket.recv(most)
        except BlockingIOError:
            return b""
        except OSError as error:
            self._lose(str(error))
            return b""
        if not data:
            self._lose("it closed the connection")
        return data

    def _write(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except OSError as error:
            self._lose(str(error))


def join_group(
    group: TurnGroup, priority: Callable[[], float], clock: Callable[[], float] = time.monotonic
) -> Member:
    """Make a member of `group`, which keeps trying to reach its server; `priority` as `Member` has it."""
    return Member(Connection(group, clock), priority, clock)
