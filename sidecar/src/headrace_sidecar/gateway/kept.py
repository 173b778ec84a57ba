"""Results that are kept for as long as every catalog asks for them again.

Envoy's resources take long to make and tens of KiB each. A cache by size would keep those of services that
are long gone, or drop some of a large fleet.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Kept(Generic[P, T]):
    """A function of hashable positional arguments; what it gives must not be changed."""

    every: ClassVar[list[Any]] = []

    def __init__(self, make: Callable[P, T]) -> None:
        self._make = make
        self._before: dict[object, T] = {}
        self._now: dict[object, T] = {}
        self.every.append(self)

    def __call__(self, *given: P.args, **named: P.kwargs) -> T:
        """The result, made anew if neither this catalog nor the one before asked for it."""
        if given not in self._now:
            before = self._before
            self._now[given] = before[given] if given in before else self._make(*given, **named)
        return self._now[given]

    def turn(self) -> None:
        """The next catalog begins."""
        self._before, self._now = self._now, {}


def next_catalog() -> None:
    """Forget what the last catalog did not ask for."""
    for each in Kept.every:
        each.turn()
