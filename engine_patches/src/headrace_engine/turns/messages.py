"""What engines and the turn server say to each other: messages of 24 bytes, after a greeting.

The server begins with `NONCE_BYTES` random bytes; the engine answers with their HMAC under the group's token,
and after that both send messages. A wrong answer ends the connection.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

NONCE_BYTES = DIGEST_BYTES = 32
_LAYOUT = Struct("<BB2xIQd")
MESSAGE_BYTES = _LAYOUT.size


class Kind(IntEnum):
    """What a message means, the first four from an engine, the others from the server."""

    WANT = 1  # the turn, with this priority
    KEEP = 2  # I hold it, others wait, and this is my priority
    RELEASE = 3  # here is the turn; and if `again`, I want it with this priority
    IDLE = 4  # I want the turn no more
    GRANT = 5  # it is your turn; this is the best priority that waits, inf if nobody does
    ASK = 6  # this priority waits now
    FENCED = 7  # your turn took too long, and has ended
    PING = 8  # the server lives


class Message(NamedTuple):
    """One message. `priority`: the least goes first.

    `epoch`: number of the turn that it is about. `want`: number of its engine's wish for the turn, which a
    grant repeats, since an engine may have withdrawn it meanwhile.
    """

    kind: Kind
    epoch: int = 0
    priority: float = 0.0
    want: int = 0
    again: bool = False


class MalformedError(ValueError):
    """Bytes that are no message of this side, or one with a priority that nobody can have."""


def sign(token: bytes, nonce: bytes) -> bytes:
    """Return what proves to have the group's token."""
    return hmac.digest(token, nonce, "sha256")


def pack(message: Message) -> bytes:
    """Return the message's bytes."""
    return _LAYOUT.pack(message.kind, message.again, message.want, message.epoch, message.priority)


def unpack(data: bytes, *, to_server: bool) -> Iterator[Message]:
    """Yield the messages; raises MalformedError unless each is one that this side may be sent.

    Priorities that engines send are finite; the server also sends inf for nobody, and -inf for one that has
    waited for too long.
    """
    if len(data) % MESSAGE_BYTES:
        raise MalformedError(f"{len(data)} bytes are not whole messages")
    for kind, again, want, epoch, priority in _LAYOUT.iter_unpack(data):
        if kind not in (_TO_SERVER if to_server else _TO_ENGINE):
            raise MalformedError(f"there is no message {kind} for this side")
        if math.isnan(priority) or (to_server and math.isinf(priority)):
            raise MalformedError(f"{priority} is no priority")
        yield Message(Kind(kind), epoch, priority, want, bool(again))


_TO_SERVER = frozenset((Kind.WANT, Kind.KEEP, Kind.RELEASE, Kind.IDLE))
_TO_ENGINE = frozenset(Kind) - _TO_SERVER
