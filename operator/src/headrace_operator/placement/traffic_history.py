"""What the engines of a pool's services told of the last hour, also those that have ended since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from headrace_engine.contracts.traffic import MOST_WINDOWS, WINDOW_SECONDS, TrafficWindow
from headrace_operator.placement.traffic import add_up

_HOUR = MOST_WINDOWS * WINDOW_SECONDS
_CLOCKS_APART = 60  # seconds, at most, of the operator's and a node's clock
_MOST_REQUESTS = 50_000  # of an engine in a window; who tells more tells no truth
_MOST_TOKENS = 10_000_000  # of a request


class TrafficHistory:
    """The windows of each service's engines. Engines may tell anything: what can't be is passed over."""

    def __init__(self) -> None:
        self._told: defaultdict[str, dict[str, dict[int, TrafficWindow]]] = defaultdict(dict)

    def add(self, service: str, engine: str, windows: Iterable[TrafficWindow], now: float) -> None:
        """Remember what an engine told at `now`, unix seconds; of a window counts what it told last."""
        known = self._told[service].setdefault(engine, {})
        known.update({each.start: each for each in windows if _is_believable(each)})
        self._told[service][engine] = {start: known[start] for start in known if _is_recent(start, now)}

    def last_hour(self, service: str, now: float) -> tuple[TrafficWindow, ...]:
        """Return what all engines of a service were asked in the hour before `now`, by time."""
        told = self._told.get(service, {}).values()
        return tuple(
            add_up(window for known in told for window in known.values() if _is_recent(window.start, now))
        )

    def has_told(self, service: str) -> bool:
        """Tell whether an engine of the service has ever told anything, if only that it was asked nothing."""
        return service in self._told

    def forget_ended(self, service: str, engines: Iterable[str], now: float) -> None:
        """Forget the engines that are none of `engines` and of whose windows none is of the last hour."""
        running = set(engines)
        for engine, known in list(self._told.get(service, {}).items()):
            if engine not in running and not any(_is_recent(start, now) for start in known):
                del self._told[service][engine]


def _is_believable(window: TrafficWindow) -> bool:
    return (
        window.start % WINDOW_SECONDS == 0
        and 0 < window.requests <= _MOST_REQUESTS
        and max(window.prompt_tokens, window.output_tokens) <= window.requests * _MOST_TOKENS
    )


def _is_recent(start: int, now: float) -> bool:
    return now - _HOUR <= start <= now + _CLOCKS_APART
