"""Throttles repeated writes: the same content is written to an object at most every two seconds.

So a controller that keeps undoing our writes costs little. The first edit of someone else is healed at once;
only when an object is changed again right after it was written does the next write wait. A write with new
content never waits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from headrace_operator.api import Key
from headrace_operator.decide.plan import Action, Apply, Delete, target_of
from headrace_operator.desired import content_hash

_SECONDS_BETWEEN_WRITES = 2.0


@dataclass(slots=True)
class WriteThrottle:
    """When each object was written last, and with what content."""

    _written: dict[Key, dict[Hashable, tuple[str, float]]] = field(default_factory=dict)

    def seconds_until_allowed(self, key: Key, target: Hashable, content: str, now: float) -> float:
        """Return the seconds until this content (its hash) may be written to the target; 0 means now."""
        before, when = self._written.get(key, {}).get(target, (None, 0.0))
        return max(0.0, when + _SECONDS_BETWEEN_WRITES - now) if before == content else 0.0

    def record_write(self, key: Key, target: Hashable, content: str, now: float) -> None:
        """Remember that this content was written to the target now."""
        self._written.setdefault(key, {})[target] = content, now

    def split_due_actions(
        self, key: Key, actions: Iterable[Action], now: float
    ) -> tuple[list[Action], float | None]:
        """Return the actions that are due, and the seconds until the first of the others (None: no others).

        An object that is to be made anew is not deleted before it may be written again.
        """
        actions = list(actions)
        waits = {
            target: wait
            for target, content in (_target_and_hash(each) for each in actions if isinstance(each, Apply))
            if (wait := self.seconds_until_allowed(key, target, content, now)) > 0.0
        }
        due = [action for action in actions if target_of(action) not in waits]
        return due, min(waits.values(), default=None)

    def record_actions(self, key: Key, actions: Iterable[Action], now: float) -> None:
        """Remember executed actions. What we deleted ourselves is no one's edit: it may come back at once."""
        for action in actions:
            if isinstance(action, Apply):
                self.record_write(key, *_target_and_hash(action), now)
            elif isinstance(action, Delete):
                self._written.get(key, {}).pop(target_of(action), None)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a service that is gone."""
        self._written.pop(key, None)


def _target_and_hash(action: Apply) -> tuple[Hashable, str]:
    return target_of(action), content_hash(action.manifest)
