"""Remembers which writes the cluster refused lately, by content, and when each may be tried again."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace_operator.api import Key
from headrace_operator.decide.admission import LONGEST_RETRY_SECONDS
from headrace_operator.errors import RefusedError

Write = tuple[str, str, str]  # kind, name, hash of the content


@dataclass(frozen=True, slots=True)
class _Refusal:
    error: RefusedError
    until: float  # by the caller's clock, seconds
    times: int


@dataclass(slots=True)
class Refusals:
    """The refused writes of all services."""

    _known: dict[Key, dict[Write, _Refusal]] = field(default_factory=dict)

    def current_refusal(self, key: Key, write: Write, now: float) -> RefusedError | None:
        """Return the refusal of this write while it is too early to try it again, else None."""
        known = self._known.get(key, {}).get(write)
        if known is None or now >= known.until:
            return None
        error = known.error
        return RefusedError(error.reason, str(error), retry_after=known.until - now)

    def count_refusals(self, key: Key, write: Write) -> int:
        """Return how often this write was refused in a row."""
        known = self._known.get(key, {}).get(write)
        return known.times if known else 0

    def record_refusal(self, key: Key, write: Write, error: RefusedError, now: float) -> None:
        """Remember that this write was refused once more, and drop refusals that are long over."""
        writes = self._known.setdefault(key, {})
        old = [each for each, known in writes.items() if now > known.until + LONGEST_RETRY_SECONDS]
        times = self.count_refusals(key, write) + 1
        for each in old:
            del writes[each]
        writes[write] = _Refusal(error, now + error.retry_after, times)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a service that is gone."""
        self._known.pop(key, None)
