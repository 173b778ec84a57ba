"""Whose turn it is to ask for room, of the streams that engines have handed back.

Who has had least of its answer goes on first, so that short answers do not wait for long ones; and who has
waited for too long goes ahead of all: until there is room for it nobody goes on, so that there soon is.
"""

from typing import Generic, NamedTuple, TypeVar

PATIENCE = 60.0  # seconds
MOST_WAIT = 120.0  # seconds for room; then a stream joins the queue of an engine, which has a patience too

Key = TypeVar("Key")


class _Place(NamedTuple):
    magnitude: int  # of the answer so far: who has had about as much is equal
    since: float


class Line(Generic[Key]):
    """The streams of one service; times are seconds of one clock."""

    def __init__(self) -> None:
        self._places: dict[Key, _Place] = {}  # as they came

    def __len__(self) -> int:
        return len(self._places)

    def join(self, stream: Key, tokens: int, now: float) -> None:
        """Take in a stream whose answer has so many tokens."""
        self._places[stream] = _Place(tokens.bit_length(), now)

    def leave(self, stream: Key) -> None:
        """Take in that a stream waits no more."""
        del self._places[stream]

    def waited(self, stream: Key, now: float) -> float:
        """Return for how many seconds a stream has waited."""
        return now - self._places[stream].since

    def first(self, now: float) -> Key | None:
        """Return whose turn it is; None if nobody waits."""
        oldest = next(iter(self._places), None)
        if oldest is None or self.waited(oldest, now) >= PATIENCE:
            return oldest
        return min(self._places, key=lambda stream: self._places[stream].magnitude)
