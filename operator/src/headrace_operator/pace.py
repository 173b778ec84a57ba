"""Keeps a quarrel with another writer slow: the same content is written at most every two seconds.

The first edit of someone else is healed at once. Only when an object is changed again right after it was
written does the next write wait; one with new content never does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from headrace_operator.api import Key
from headrace_operator.desired import content_hash
from headrace_operator.plan import Action, Apply

_APART = 2.0  # seconds


@dataclass(slots=True)
class Pace:
    """When each object was written last, and with what."""

    _written: dict[Key, dict[Hashable, tuple[str, float]]] = field(default_factory=dict)

    def wait(self, key: Key, place: Hashable, content: str, now: float) -> float:
        """Seconds until this content (its hash) may be written there; 0: now."""
        before, when = self._written.get(key, {}).get(place, (None, 0.0))
        return max(0.0, when + _APART - now) if before == content else 0.0

    def wrote(self, key: Key, place: Hashable, content: str, now: float) -> None:
        """It was written."""
        self._written.setdefault(key, {})[place] = content, now

    def split(self, key: Key, actions: Iterable[Action], now: float) -> tuple[list[Action], float | None]:
        """What may be done now, and the seconds until the first of the rest may (None: there is no rest)."""
        due, waits = [], []
        for action in actions:
            wait = self.wait(key, *_of(action), now) if isinstance(action, Apply) else 0.0
            if wait > 0.0:
                waits.append(wait)
            else:
                due.append(action)
        return due, min(waits, default=None)

    def did(self, key: Key, actions: Iterable[Action], now: float) -> None:
        """They were carried out."""
        for action in actions:
            if isinstance(action, Apply):
                self.wrote(key, *_of(action), now)

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._written.pop(key, None)


def _of(action: Apply) -> tuple[Hashable, str]:
    manifest = action.manifest
    return (manifest["kind"], manifest["metadata"]["name"]), content_hash(manifest)
