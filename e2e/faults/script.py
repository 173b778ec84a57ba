"""Which call to the API server meets which fault: rules, tried in order, each with a count of its own.

A request is asked about once when it arrives; an event of a watch once when it is about to be passed on.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """A request, or with `event` one event of its watch."""

    method: str
    path: str
    query: Mapping[str, str]
    event: Mapping[str, Any] | None = None

    @property
    def watch(self) -> bool:
        """Whether it is a watch or one of its events."""
        return self.query.get("watch") == "true"

    @property
    def write(self) -> bool:
        """Whether it would change something."""
        return self.method != "GET" and "dryRun" not in self.query


@dataclass(frozen=True, slots=True)
class Delay:
    """The request, or the event and all behind it, arrives later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection breaks; with `after`, when the API server has already done what was asked."""

    after: bool = False


@dataclass(frozen=True, slots=True)
class Status:
    """The API server answers with an error and does nothing."""

    code: int
    retry_after: int | None = None  # seconds


@dataclass(frozen=True, slots=True)
class Hang:
    """No answer ever comes, and nothing is done."""


@dataclass(frozen=True, slots=True)
class HalfOpen:
    """It is done, half of the answer comes, then nothing more; the connection stays."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The watch says that its resource version is too old (410), and ends."""


@dataclass(frozen=True, slots=True)
class Mute:
    """The watch stays open and brings nothing from here on, not even bookmarks."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The watch breaks in the middle of the event; with `orderly`, as if it had come to its end."""

    orderly: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """An event that is lost on the way."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """An event that arrives twice."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The event comes after the one that follows it."""


Fault = Delay | Reset | Status | Hang | HalfOpen | Gone | Mute | Cut | Drop | Duplicate | Hold

_OF_EVENTS = (Delay, Gone, Mute, Cut, Drop, Duplicate, Hold)
_OF_REQUESTS = (Delay, Reset, Status, Hang, HalfOpen, Gone)


@dataclass(slots=True)
class Rule:
    """A fault for the calls that `where` picks: a `share` of them, at most `times`."""

    fault: Fault
    where: Callable[[Call], bool] = lambda _: True
    share: float = 1.0
    times: int | None = None


@dataclass(slots=True)
class Script:
    """The rules in force, and how often each fault happened."""

    seed: int = 0
    rules: list[Rule] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # by the fault's name
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def choose(self, call: Call) -> Fault | None:
        """Choose the fault that the call meets: of the first rule that picks it."""
        possible = _OF_REQUESTS if call.event is None else _OF_EVENTS
        for rule in tuple(self.rules):
            if rule.times == 0 or not isinstance(rule.fault, possible) or not rule.where(call):
                continue
            if isinstance(rule.fault, Gone) and not call.watch:
                continue
            if rule.share < 1.0 and self._random.random() >= rule.share:
                continue
            if rule.times is not None:
                rule.times -= 1
            self.counts[type(rule.fault).__name__] += 1
            return rule.fault
        return None
