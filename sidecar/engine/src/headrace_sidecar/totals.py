"""Cumulative numbers that go on when the engine starts again from zero.

A board counts since its engine's boot. Prometheus counters and rates want one series per pod, so the last
numbers of each ended boot are added to those of the present one. All begin with this process: what was there
at its first look belongs to the series of its predecessor, which ended where nobody knows.
"""

from __future__ import annotations

from operator import attrgetter

from headrace_engine.control.records import BoardRecord

COUNTED = (
    *("step", "arrivals", "arrived_tokens", "finishes", "preemptions", "fallback_steps"),
    *("prediction_failures", "predictions_learned", "ignored_overrides"),
    *("turns", "turn_wait_seconds"),
)
_counts = attrgetter(*COUNTED)


class Totals:
    """Increases of the board's cumulative fields over all boots seen; `boots` counts these."""

    def __init__(self) -> None:
        self.boots = 0
        self._boot = ""
        self._ended: dict[str, float] = dict.fromkeys(COUNTED, 0)
        self._present: dict[str, float] = dict.fromkeys(COUNTED, 0)

    def add(self, boot: str, record: BoardRecord, *, earlier: bool = False) -> None:
        """Take the board's numbers of this moment into account; `earlier`: they do not count themselves."""
        present = dict(zip(COUNTED, _counts(record), strict=True))
        if boot != self._boot:
            self._boot = boot
            self.boots += 1
            self._ended = {name: -present[name] if earlier else self.total(name) for name in COUNTED}
        self._present = present

    def total(self, name: str) -> float:
        """Return the total of the board's field `name`."""
        return self._ended[name] + self._present[name]
