"""The turn server of a group: sockets around `rules`, in one thread, for some tens of engines.

It takes time in the critical path of every step that somebody waits for, so it does nothing else.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from headrace_engine.turns.messages import (
    DIGEST_BYTES,
    MESSAGE_BYTES,
    NONCE_BYTES,
    Kind,
    MalformedError,
    Message,
    pack,
    sign,
    unpack,
)
from headrace_engine.turns.rules import Sent, Turns

log = logging.getLogger("headrace.turns")

CONNECTIONS = 64
GREETING_SECONDS = 2.0  # until a connection has proved that it is a member's
PING_SECONDS = 0.5
TICK_SECONDS = 0.02
READ_BYTES = 4096
UNSENT_SECONDS = 10  # until the kernel gives up a connection whose other end answers nothing


@dataclass(slots=True, eq=False)
class Connection:
    """One engine's; `nonce` is what it still has to sign, empty afterwards."""

    socket: socket.socket
    peer: str
    since: float
    nonce: bytes
    unread: bytes = field(default=b"")


class TurnServer:
    """Serves on `listener`, a listening socket, until `stop`. `token`: the group's."""

    def __init__(
        self,
        listener: socket.socket,
        token: bytes,
        turns: Turns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener = listener
        self._token = token
        self._turns = turns
        self._clock = clock
        self._selector = selectors.DefaultSelector()
        self._connections: set[Connection] = set()
        self._pinged = 0.0
        self._stopped = False
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def stop(self) -> None:
        """End `serve` within `TICK_SECONDS`; may be called from a signal handler or another thread."""
        self._stopped = True

    def serve(self) -> None:
        """Serve until it is stopped."""
        while not self._stopped:
            for key, _ in self._selector.select(TICK_SECONDS):
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.data)
            self._tick()
        for connection in list(self._connections):
            self._close(connection)
        self._selector.close()

    def _accept(self) -> None:
        try:
            accepted, address = self._listener.accept()
        except OSError:
            return
        if len(self._connections) >= CONNECTIONS:
            log.warning("more than %d connections; %s is refused", CONNECTIONS, address[0])
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNSENT_SECONDS * 1000)
        connection = Connection(accepted, str(address[0]), self._clock(), secrets.token_bytes(NONCE_BYTES))
        self._connections.add(connection)
        self._selector.register(accepted, selectors.EVENT_READ, connection)
        self._write(connection, connection.nonce)

    def _read(self, connection: Connection) -> None:
        if connection not in self._connections:
            return  # it was closed by what came before it
        try:
            data = connection.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(connection)
            return
        data = connection.unread + data
        if connection.nonce:
            if len(data) < DIGEST_BYTES:
                connection.unread = data
                return
            if not hmac.compare_digest(data[:DIGEST_BYTES], sign(self._token, connection.nonce)):
                log.warning("%s has not the token of this group", connection.peer)
                self._close(connection)
                return
            connection.nonce, data = b"", data[DIGEST_BYTES:]
        whole = len(data) - len(data) % MESSAGE_BYTES
        connection.unread = data[whole:]
        try:
            for message in unpack(data[:whole], to_server=True):
                self._send(self._turns.take_in(connection, message, self._clock()))
        except MalformedError as error:
            log.warning("%s: %s", connection.peer, error)
            self._close(connection)

    def _tick(self) -> None:
        now = self._clock()
        self._send(self._turns.tick(now))
        for connection in list(self._connections):
            if connection.nonce and now - connection.since > GREETING_SECONDS:
                self._close(connection)
        if now - self._pinged >= PING_SECONDS:
            self._pinged = now
            self._send([(member, Message(Kind.PING)) for member in self._turns.concerned])

    def _send(self, messages: Sent) -> None:
        for member, message in messages:
            if isinstance(member, Connection):
                self._write(member, pack(message))

    def _write(self, connection: Connection, data: bytes) -> None:
        with suppress(OSError):
            if connection.socket.send(data) == len(data):
                return
        with suppress(OSError):  # it is gone, or reads nothing: its end of file is read next
            connection.socket.shutdown(socket.SHUT_RDWR)

    def _close(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._selector.unregister(connection.socket)
        connection.socket.close()
        if not connection.nonce:
            self._send(self._turns.leave(connection, self._clock()))
