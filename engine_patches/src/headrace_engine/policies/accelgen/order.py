"""Who is next: by how long a request can still wait, with hopeless ones last and nobody last for ever.

A request's latest start is its deadline less the time that it takes to meet it: for TTFT its prefill, in
chunks of a step as steps are; for E2E also its predicted output, a mean step for each token [section 4.3].
Remaining time T_r is latest start less now, so it falls alike for all, and the order of latest starts stays.

Requests within gamma of the most urgent are equally urgent, and `selection` picks among them [section 4.4].
Each request goes through three lists, from one to the next as time passes: later, near, hopeless. One step
moves so many and no more; of thousands that arrive at once those that joined last wait at the end meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from math import inf

from headrace_engine.policies.accelgen.step_estimate import StepEstimate
from headrace_engine.policies.admission import prefill_fits
from headrace_engine.policies.ageing import Ageing
from headrace_engine.policies.engine_view import EngineLimits, EngineView, RequestView
from headrace_engine.policies.rotation import PLACED_PER_STEP, rotate_waiting

URGENT = 2  # steps; who can wait for no longer must start now, since a step may be under way
TURN = 16  # steps, in one of which hopeless requests that are overdue go ahead of all
LOOK_AHEAD = 32  # requests that do not fit which an admission passes over for others that do

BySize = tuple[int, int, RequestView]


@dataclass(slots=True)
class Waiting:
    """One request in the queue."""

    number: int  # in order of joining
    tokens: int  # that it has to prefill, as last looked up: what the prefix cache has of it is done
    blocks: int  # of those
    latest: float = inf  # start; what has produced output already is always in time
    place: str = "new"  # later, near, hopeless


class UrgencyOrder:
    """The waiting requests in AccelGen's order. Joining and leaving take a few binary searches."""

    def __init__(
        self,
        gamma: float,
        selection: str,
        patience: int,
        limits: EngineLimits,
        steps: StepEstimate,
        *,
        ordering: bool,
    ) -> None:
        self._gamma = gamma
        self._selection = selection
        self._limits = limits
        self._steps = steps
        self._ordering = ordering
        self._ageing = Ageing(patience, limits)
        self._numbers = count()
        self._waiting: OrderedDict[RequestView, Waiting] = OrderedDict()
        self._new: dict[RequestView, None] = {}
        self._later: list[tuple[float, int, int, RequestView]] = []  # latest start, tokens, number
        self._near: list[BySize] = []
        self._hopeless: list[BySize] = []
        self._expiring: list[tuple[float, int, RequestView]] = []  # `near` by latest start
        self._moving = -inf  # up to this latest start requests are being moved to `near`
        self._leading: set[RequestView] = set()  # the overdue that lead in the step under way
        self._served = 0  # step in which a hopeless request started last
        self._resumed: dict[RequestView, None] = {}  # lost their KV with their next token due

    def add(self, request: RequestView) -> None:
        """Take in `request`, which joined the queue."""
        blocks = self._limits.blocks(request.num_tokens)
        self._waiting[request] = Waiting(next(self._numbers), request.num_tokens, blocks)
        self._new[request] = None
        self._ageing.record_join(request, blocks)

    def discard(self, request: RequestView) -> None:
        """Forget `request`, which left the queue."""
        entry = self._waiting.pop(request)
        self._ageing.record_leave(request, entry.blocks)
        self._displace(request, entry)
        if entry.place == "hopeless" and request.num_computed_tokens:
            self._served = self._steps.count

    def _displace(self, request: RequestView, entry: Waiting) -> None:
        """Take the request from the list that it is in."""
        if entry.place == "new":
            del self._new[request]
        elif entry.place == "resumed":
            del self._resumed[request]
        elif entry.place == "later":
            del self._later[bisect_left(self._later, (entry.latest, entry.tokens, entry.number, request))]
        else:
            if entry.place == "near":
                self._expire(entry, request)
            by_size = self._near if entry.place == "near" else self._hopeless
            del by_size[bisect_left(by_size, (entry.tokens, entry.number, request))]

    def ranked(self, view: EngineView) -> Iterator[RequestView]:
        """Yield the overdue, then the others, most urgent first.

        An overdue request that is hopeless has no target left to meet: it leads in one step of `TURN`, then
        until one such starts, and waits behind those that can be in time otherwise.
        """
        self._settle(view)
        self._leading = first = set[RequestView]()
        turn = self._steps.count - self._served >= TURN
        for request in self._ageing.overdue(view):
            if turn or self._waiting[request].place != "hopeless":
                first.add(request)
                yield request
        for request in self._others(view):
            if request not in first:
                yield request

    def admit(self, ranked: Iterable[RequestView], view: EngineView) -> Iterator[RequestView]:
        """Admit whose prefill has free KV; others may pass those for whom it has not.

        Nobody passes an overdue request. Where nothing runs, the engine may try the first whatever it needs.
        """
        passed = 0
        for request in ranked:
            if not view.running or prefill_fits(request, view):
                yield request
                continue
            passed += 1
            if passed > LOOK_AHEAD or not self._ordering or request in self._leading:
                return

    def counts(self) -> tuple[int, int]:
        """Count those who wait, and those of them who are hopeless."""
        return len(self._waiting), len(self._hopeless)

    def tokens(self, request: RequestView) -> int:
        """Count the tokens that a waiting request has to prefill."""
        return self._waiting[request].tokens

    def is_hopeless(self, request: RequestView) -> bool:
        """Tell whether a waiting request can no longer meet its targets."""
        return self._waiting[request].place == "hopeless"

    def latest_start(self, request: RequestView, tokens: int, view: EngineView) -> float:
        """Return when a request must start that has so many tokens to prefill; inf: it has no such target."""
        targets, steps = view.targets(request), self._steps
        latest = inf
        if targets.ttft is not None and not request.num_output_tokens:
            latest = request.arrival_time + targets.ttft - steps.prefill_seconds(tokens)
        if targets.e2e is not None:
            left = view.predicted_output(request) - request.num_output_tokens
            needed = steps.prefill_seconds(tokens) + left * steps.deadlines.token
            latest = min(latest, request.arrival_time + targets.e2e - needed)
        return latest

    def urgent(self, view: EngineView) -> list[RequestView]:
        """Return those that must start in this step or the next to be in time, most urgent first."""
        self._settle(view)
        now, expiring = view.now, self._expiring
        soon = bisect_right(expiring, (now + URGENT * self._steps.seconds, inf))
        return [request for _, _, request in expiring[bisect_left(expiring, (now,)) : soon]]

    def _settle(self, view: EngineView) -> None:
        """Put new requests in their place, and those whose time has come in the next."""
        now = view.now
        for request in rotate_waiting(self._waiting) if self._limits.keeps_kv else ():
            entry = self._waiting[request]
            if entry.place != "new" and entry.tokens != request.num_tokens - view.cached_tokens(request):
                self._displace(request, entry)
                entry.place = "new"
                self._new[request] = None
        for request in list(islice(self._new, PLACED_PER_STEP)):
            del self._new[request]
            entry = self._waiting[request]
            self._resize(request, entry, view)
            if request.num_output_tokens and view.targets(request).tpot is not None:
                entry.place = "resumed"
                self._resumed[request] = None
                continue
            entry.latest = self.latest_start(request, entry.tokens, view)
            entry.place = "later"
            insort(self._later, (entry.latest, entry.tokens, entry.number, request))
        later = self._later
        late = min(bisect_left(self._expiring, (now,)), PLACED_PER_STEP)
        for _, number, request in self._expiring[:late]:
            entry = self._waiting[request]
            entry.place = "hopeless"
            del self._near[bisect_left(self._near, (entry.tokens, number, request))]
            insort(self._hopeless, (entry.tokens, number, request))
        del self._expiring[:late]
        if not later:
            return
        bound = max((now if self._near else max(now, later[0][0])) + self._gamma, self._moving)
        come = bisect_right(later, (min(bound, 1e300), inf))
        self._moving = bound if self._new or come > PLACED_PER_STEP else -inf
        come = min(come, PLACED_PER_STEP)
        for latest, tokens, number, request in later[:come]:
            entry = self._waiting[request]
            if latest < now:
                entry.place = "hopeless"
                insort(self._hopeless, (tokens, number, request))
            else:
                entry.place = "near"
                insort(self._near, (tokens, number, request))
                insort(self._expiring, (latest, number, request))
        del later[:come]

    def _resize(self, request: RequestView, entry: Waiting, view: EngineView) -> None:
        before, entry.tokens = entry.blocks, request.num_tokens - view.cached_tokens(request)
        entry.blocks = self._limits.blocks(entry.tokens)
        self._ageing.record_resize(before, entry.blocks)

    def _expire(self, entry: Waiting, request: RequestView) -> None:
        del self._expiring[bisect_left(self._expiring, (entry.latest, entry.number, request))]

    def _others(self, view: EngineView) -> Iterator[RequestView]:
        if not self._ordering:
            yield from tuple(view.waiting)
            return
        yield from tuple(self._resumed)
        if self._selection == "MostUrgent":
            yield from [request for _, _, request in self._expiring]
        else:
            first = self._first(view)
            yield from first
            ahead = set(first)
            near = self._near if self._selection == "Shortest" else reversed(self._near)
            yield from (request for _, _, request in near if request not in ahead)
        yield from (request for _, _, _, request in self._later)
        yield from (request for _, _, request in self._hopeless)
        yield from self._new

    def _first(self, view: EngineView) -> list[RequestView]:
        """Return the urgent, who go ahead [Algorithm 1]; with `Shortest`, as far as one step serves all."""
        urgent = self.urgent(view)
        if self._selection == "Shortest":
            left = self._steps.prefill_tokens
            for request in urgent:
                left -= self._waiting[request].tokens
                if left < 0:
                    return []
        return urgent
