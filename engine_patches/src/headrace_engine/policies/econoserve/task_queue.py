"""The order of the waiting requests: by rank, the lowest first.

A rank depends on how a request stands to its deadline, so it changes as time passes. Each entry therefore
says when it has to be looked at again, and only entries whose time has come are. Requests that the ageing
finds passed over for too long go ahead of all, in order of joining.

Placing a request takes a prediction and a few binary searches. One step places so many and no more, so that
thousands that arrive at once, or miss their deadline at once, do not hold up a step: those that joined last
wait at the end, in order of joining, until their turn comes.

The rank (ours) is the predicted KV x time, since that is what a request takes from the others; who can no
longer meet its deadline counts for many times its own, so a small one of them does not wait for the largest.
A request has the KV that it would take: what running requests hold of its beginning is theirs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count, islice
from math import inf

from headrace_engine.policies.ageing import Ageing
from headrace_engine.policies.econoserve.padded_lengths import PaddedLengths
from headrace_engine.policies.engine_view import EngineLimits, EngineView, RequestView
from headrace_engine.policies.rotation import PLACED_PER_STEP, rotate_waiting

LOST_WEIGHT = 16
STEPS = 64  # over which the step_average is averaged
FORGOTTEN_LATE = 256  # looks at requests that left

Rank = tuple[float, ...]

Ranking = Callable[[RequestView, EngineView, float, float, int], tuple[float, Rank]]
"""When to look again, and rank of a request, from the time of the step that may start it, its latest start
and the tokens that need KV.
"""

Entry = tuple[Rank, int, RequestView]
"""(rank, number in order of joining, request)."""


class StepAverage:
    """Seconds that a step takes while requests run, a moving average; 0 until one was seen."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._before: float | None = None
        self._seen = 0

    def observe_step(self, view: EngineView) -> None:
        """Measure the time since the last step, as the next one begins."""
        before, self._before = self._before, view.now if view.running else None
        if before is not None and self._before is not None and view.now > before:
            self._seen = min(self._seen + 1, STEPS)
            self.seconds += (view.now - before - self.seconds) / self._seen


class Deadlines:
    """By when a waiting request must start if it is to meet its targets at the step_average of now."""

    def __init__(self, step_average: StepAverage) -> None:
        self._step_average = step_average

    @property
    def step_seconds(self) -> float:
        """How long a step takes."""
        return self._step_average.seconds

    def latest_start(self, request: RequestView, view: EngineView) -> float:
        """Return the unix time by which it must start; inf without targets."""
        targets, latest = view.targets(request), inf
        if targets.e2e is not None:
            tokens = view.predicted_output(request) - request.num_output_tokens
            seconds = self._step_average.seconds / view.tokens_per_step
            latest = request.arrival_time + targets.e2e - tokens * seconds
        if targets.ttft is not None and not request.num_output_tokens:
            latest = min(latest, request.arrival_time + targets.ttft - self._step_average.seconds)
        return latest


def by_footprint(lengths: PaddedLengths) -> Ranking:
    """Rank by predicted KV x time, the least first."""

    def ranking(
        request: RequestView, view: EngineView, now: float, latest: float, tokens: int
    ) -> tuple[float, Rank]:
        left = lengths.predict_left(request, view)
        footprint = (tokens + left / 2) * left
        return (latest, (footprint,)) if now <= latest else (inf, (footprint * LOST_WEIGHT,))

    return ranking


class TaskQueue:
    """Hears of who joins and leaves; predictions are asked for when a step first looks at a request."""

    def __init__(self, ranking: Ranking, deadlines: Deadlines, patience: int, limits: EngineLimits) -> None:
        self._ranking = ranking
        self._deadlines = deadlines
        self._limits = limits
        self._ageing = Ageing(patience, limits)
        self._joined = count()
        self._fresh: dict[RequestView, int] = {}  # blocks
        self._entries: OrderedDict[RequestView, tuple[Entry, int]] = OrderedDict()  # with its blocks
        self._sorted: list[Entry] = []
        self._look_again: list[tuple[float, int]] = []  # when, and the number of whom
        self._ranked_ahead: Sequence[tuple[float, int]] = ()  # those of them who were, for the next step
        self._numbered: dict[int, RequestView] = {}
        self.overdue: set[RequestView] = set()  # at the step under way, as far as they were asked for

    def __len__(self) -> int:
        return len(self._fresh) + len(self._entries)

    def add(self, request: RequestView) -> None:
        """Take in `request`, which joined the queue."""
        blocks = self._limits.blocks(request.num_tokens)
        self._fresh[request] = blocks
        self._ageing.record_join(request, blocks)

    def discard(self, request: RequestView) -> None:
        """Forget `request`, which left the queue."""
        blocks = self._fresh.pop(request, None)
        if blocks is None:
            entry, blocks = self._entries.pop(request)
            del self._sorted[bisect_left(self._sorted, entry)]
            del self._numbered[entry[1]]
            self._forget_looks()
        self._ageing.record_leave(request, blocks)

    def _forget_looks(self) -> None:
        """Drop the times to look at those who left, once they are most: targets may be a day away."""
        if len(self._look_again) > 2 * len(self._numbered) + FORGOTTEN_LATE:
            self._look_again = [entry for entry in self._look_again if entry[1] in self._numbered]
            heapify(self._look_again)

    def prepare(self, view: EngineView) -> None:
        """Rank anew whose latest start will probably be past when the next step begins: so it need not."""
        self._ranked_ahead = self._rank_again(view, view.now + self._deadlines.step_seconds, PLACED_PER_STEP)

    def ranked(self, view: EngineView) -> Iterator[RequestView]:
        """Yield the overdue, then the others by rank, equals in order of joining."""
        self._sort_in(view)
        overdue = self.overdue
        overdue.clear()
        for request in self._ageing.overdue(view):
            overdue.add(request)
            yield request
        for entry in self._sorted:
            if entry[2] not in overdue:
                yield entry[2]
        for request in self._fresh:
            if request not in overdue:
                yield request

    def _sort_in(self, view: EngineView) -> None:
        for request in rotate_waiting(self._entries) if self._limits.keeps_kv else ():
            entry, blocks = self._entries[request]
            if blocks != self._blocks(request, view):
                del self._sorted[bisect_left(self._sorted, entry)]
                self._enter(request, blocks, entry[1], view, view.now)
        for due, number in self._ranked_ahead:
            if due >= view.now and number in self._numbered:  # the step began sooner
                self._rank_one_again(number, view, view.now)
        self._ranked_ahead = ()
        first = list(islice(self._fresh, PLACED_PER_STEP))
        for request in first:
            self._enter(request, self._fresh.pop(request), next(self._joined), view, view.now)
        self._rank_again(view, view.now, PLACED_PER_STEP - len(first))

    def _rank_again(self, view: EngineView, now: float, room: int) -> list[tuple[float, int]]:
        """Rank up to `room` of those whose time to be looked at is before `now`; gives times and numbers."""
        again = self._look_again
        ranked: list[tuple[float, int]] = []
        while len(ranked) < room and again and again[0][0] < now:
            entry = heappop(again)
            ranked.append(entry)
            if entry[1] in self._numbered:  # else it left
                self._rank_one_again(entry[1], view, now)
        return ranked

    def _rank_one_again(self, number: int, view: EngineView, now: float) -> None:
        request = self._numbered[number]
        entry, blocks = self._entries[request]
        del self._sorted[bisect_left(self._sorted, entry)]
        self._enter(request, blocks, number, view, now)

    def _blocks(self, request: RequestView, view: EngineView) -> int:
        """Count the KV blocks that it takes to start."""
        return max(self._limits.blocks(request.num_tokens) - view.shared_blocks(request), 0)

    def _enter(self, request: RequestView, before: int, number: int, view: EngineView, now: float) -> None:
        blocks, shared = before, 0
        if self._limits.keeps_kv:
            blocks = self._blocks(request, view)
            self._ageing.record_resize(before, blocks)
            shared = self._limits.shared_tokens(self._limits.blocks(request.num_tokens) - blocks)
        latest = self._deadlines.latest_start(request, view)
        look_again, rank = self._ranking(request, view, now, latest, request.num_tokens - shared)
        entry = (rank, number, request)
        self._entries[request] = entry, blocks
        self._numbered[number] = request
        insort(self._sorted, entry)
        if look_again < inf:
            heappush(self._look_again, (max(look_again, now), number))
