"""What was refused lately, by content: it is told meanwhile, and not asked for again at every event."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace_operator.admission import LONGEST_AGAIN
from headrace_operator.api import Key
from headrace_operator.errors import RefusedError

Write = tuple[str, str, str]  # kind, name, hash of the content


@dataclass(frozen=True, slots=True)
class _Refusal:
    error: RefusedError
    until: float  # by the caller's clock, seconds
    tried: int


@dataclass(slots=True)
class Refusals:
    """Of all services."""

    _known: dict[Key, dict[Write, _Refusal]] = field(default_factory=dict)

    def standing(self, key: Key, write: Write, now: float) -> RefusedError | None:
        """The refusal of this write, if it is too early to try it again."""
        known = self._known.get(key, {}).get(write)
        if known is None or now >= known.until:
            return None
        error = known.error
        return RefusedError(error.reason, str(error), again=known.until - now)

    def tried(self, key: Key, write: Write) -> int:
        """How often it was refused in a row."""
        known = self._known.get(key, {}).get(write)
        return known.tried if known else 0

    def add(self, key: Key, write: Write, error: RefusedError, now: float) -> None:
        """It was refused once more."""
        writes = self._known.setdefault(key, {})
        old = [each for each, known in writes.items() if now > known.until + LONGEST_AGAIN]
        tried = self.tried(key, write) + 1
        for each in old:
            del writes[each]
        writes[write] = _Refusal(error, now + error.again, tried)

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._known.pop(key, None)
