"""Keeps a quarrel with another writer slow: the same content is written at most every two seconds.

The first edit of someone else is healed at once. Only when an object is changed again right after it was
written does the next write wait; one with new content never does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from headrace_operator.api import Key
from headrace_operator.desired import content_hash
from headrace_operator.plan import Action, Apply, Delete, Nudge

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
        """What may be done now, and the seconds until the first of the rest may (None: there is no rest).

        An object that is to be made anew stays as it is until that may be done.
        """
        actions = list(actions)
        waits = {
            place: wait
            for place, content in (_of(action) for action in actions if isinstance(action, Apply))
            if (wait := self.wait(key, place, content, now)) > 0.0
        }
        now_due = [action for action in actions if place(action) not in waits]
        return now_due, min(waits.values(), default=None)

    def did(self, key: Key, actions: Iterable[Action], now: float) -> None:
        """They were carried out. What we deleted ourselves is no one's edit: it may come back at once."""
        for action in actions:
            if isinstance(action, Apply):
                self.wrote(key, *_of(action), now)
            elif isinstance(action, Delete):
                self._written.get(key, {}).pop(place(action), None)

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._written.pop(key, None)


def _of(action: Apply) -> tuple[Hashable, str]:
    return place(action), content_hash(action.manifest)


def place(action: Action) -> tuple[str, str]:
    """Kind and name of the object that it is about."""
    match action:
        case Apply(manifest):
            return manifest["kind"], manifest["metadata"]["name"]
        case Delete(kind, name):
            return kind, name
        case Nudge(pod):
            return "Pod", pod.name
