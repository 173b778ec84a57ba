"""The times between tokens of every running request, from the times of the steps that brought them.

All tokens of a step come at one time. So the gaps of a request are those of the steps in a row that each
brought it some: what happened in a row of steps is kept once for all, and a request only where its own row
began. Only who gets tokens after a step without, or none after a step with, is looked at by itself.
"""

from __future__ import annotations

from bisect import bisect_right


class TokenTimes:
    """One request's tokens; times are the clock's, `first` and `last` are 0 while there are none.

    What lies in a row of steps that goes on is not in it yet, see `TokenGaps.settle`.
    """

    __slots__ = ("first", "last", "most", "row_began", "target", "violations", "violations_before")

    def __init__(self) -> None:
        self.first = 0.0
        self.last = 0.0
        self.most = 0.0  # seconds of the longest gap
        self.violations = 0  # gaps beyond the target
        self.target: float | None = None  # of the row that goes on
        self.row_began = 0  # with this step
        self.violations_before = 0  # of all steps since someone has this target


class TokenGaps:
    """The rows of steps that go on, by the ids of the requests that they bring tokens."""

    def __init__(self) -> None:
        self._rows: dict[str, TokenTimes] = {}
        self._names: list[str] = []  # whom the last step brought tokens, less those who ended since
        self._step = 0  # number of the last one that brought tokens
        self._time = 0.0  # of it
        # Steps each of which took longer than all after it, and how long each took: the first entry after a
        # step is the longest since.
        self._peaks: list[int] = []
        self._peak_gaps: list[float] = []
        self._beyond: dict[float, int] = {}  # target → steps that took longer, since someone has it
        self._holders: dict[float, int] = {}  # target → rows with it

    def note_step(self, names: list[str], now: float) -> list[str]:
        """Take in that a step brought tokens to `names`; gives those whose row `begin` shall begin.

        Mostly they are those of the last step, whose strings an engine goes on using: a quick comparison.
        """
        joined = [] if names == self._names else self._regroup(names)
        gap = now - self._time
        self._step += 1
        self._time = now
        peaks, gaps = self._peaks, self._peak_gaps
        if not self._rows:
            peaks.clear()
            gaps.clear()
            return joined
        while gaps and gaps[-1] <= gap:
            del peaks[-1], gaps[-1]
        peaks.append(self._step)
        gaps.append(gap)
        for target in self._beyond:
            if gap > target:
                self._beyond[target] += 1
        return joined

    def _regroup(self, names: list[str]) -> list[str]:
        """End the rows of those who are not among `names`; gives those of `names` who have none.

        An engine appends who starts, so `names` mostly begins with those of the last step.
        """
        rows, known = self._rows, self._names
        self._names = names.copy()  # from which we remove
        started = names[len(known) :]
        if names[: len(known)] == known and rows.keys().isdisjoint(started):
            return started
        current = set(names)
        for name in rows.keys() - current:
            self._end(name)
        return list(current.difference(rows))

    def begin(self, name: str, times: TokenTimes, target: float | None) -> None:
        """Begin a row of the request `name` with the last step; gaps beyond `target` will be counted."""
        now = self._time
        if times.first:
            gap = now - times.last
            times.most = max(times.most, gap)
            if target is not None and gap > target:
                times.violations += 1
        else:
            times.first = now
        self._enter(name, times, target)

    def settle(self, name: str) -> None:
        """End the row of `name`, if it has one, and take what lies in it into its times."""
        if name in self._rows:
            self._end(name)
            self._names.remove(name)

    def change_target(self, name: str, target: float | None) -> None:
        """Count the gaps of `name` beyond `target` from the last step on, if it has a row."""
        times = self._rows.get(name)
        if times is not None and times.target != target:
            self._end(name)
            self._enter(name, times, target)

    def _end(self, name: str) -> None:
        times = self._rows.pop(name)
        times.last = self._time
        place = bisect_right(self._peaks, times.row_began)
        if place < len(self._peaks):
            times.most = max(times.most, self._peak_gaps[place])
        target = times.target
        if target is not None:
            times.violations += self._beyond[target] - times.violations_before
            self._holders[target] -= 1
            if not self._holders[target]:
                del self._holders[target], self._beyond[target]

    def _enter(self, name: str, times: TokenTimes, target: float | None) -> None:
        times.last = self._time
        times.row_began, times.target = self._step, target
        self._rows[name] = times
        if target is not None:
            self._holders[target] = self._holders.get(target, 0) + 1
            times.violations_before = self._beyond.setdefault(target, 0)
