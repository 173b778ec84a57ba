"""A cache of what Envoy's configuration is made of: an entry lives for as long as every catalog asks for it.

Envoy's resources take long to make and tens of KiB each. A cache of a fixed size would keep those of services
that are long gone, or drop some of a large fleet. So entries belong to generations, one per catalog: what
neither the current catalog nor the one before asked for is forgotten.
"""

from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class GenerationCache:
    """Results of functions by their (hashable) arguments; what it gives must not be changed."""

    def __init__(self) -> None:
        self._before: dict[object, Any] = {}
        self._now: dict[object, Any] = {}

    def begin_generation(self) -> None:
        """Begin with the next catalog; forget what the last one did not ask for."""
        self._before, self._now = self._now, {}

    def get_or_make(self, make: Callable[[*Ts], T], *given: *Ts) -> T:
        """Return `make(*given)`, made anew if neither this generation nor the one before asked for it."""
        key = (make, given)
        if key not in self._now:
            self._now[key] = self._before[key] if key in self._before else make(*given)
        result: T = self._now[key]
        return result
