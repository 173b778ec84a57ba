"""LARRY: short prompts first when memory is contested, oldest first when it is not, and nobody for ever last.

score = alpha * wait - queue length * prompt KV, highest first [Load-Adaptive Request Reordering, section 4.1;
KV in blocks: our reading]. Requests start in that order while the KV of their prefill is free, and the first
that does not fit ends the step's admission. A preempted request's KV includes its output so far; what the
prefix cache has of a prompt counts for nothing, since it is neither computed nor stored again.

As time passes all scores rise alike, and the queue's length is common to all. So lowest

    cost = alpha * arrival + queue length * blocks

first is the same order, and among requests of equal size it is that of arrival, whatever the queue's length.
Ranking therefore keeps requests by size and by age, and merges only as much of them as is asked for.

That order starves long prompts. Ageing (ours, see `ageing`) moves those that too much has overtaken to the
front. It also lets long outputs stall: who lost its KV has grown, and would wait behind all that is shorter.
So that goes first of all (ours, as in vLLM). `patience` 0 is the paper's form, without either.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, count, islice

from headrace_engine.policies import ageing
from headrace_engine.policies.admission import prompt_fits
from headrace_engine.policies.ageing import Ageing
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.engine_view import EngineLimits, EngineView, RequestView
from headrace_engine.policies.parameters import doc
from headrace_engine.policies.rotation import PLACED_PER_STEP, rotate_waiting
from headrace_engine.policies.step_budget import StepBudget


@dataclass(frozen=True, slots=True)
class Params:
    """How the two terms of the score weigh against each other, and how long a request may be passed over."""

    alpha: int = field(
        default=10,
        metadata=doc(
            "Weight of waiting. 0 serves the shortest prompts first, however long others wait; above about"
            " 1000 the order becomes that of arrival. Lower it where the KV cache is short and the mean time"
            " to first token counts most; raise it where order of arrival shall count for more.",
            unit="KV blocks per second",
            minimum=0,
            maximum=100_000,
        ),
    )
    patience: int = ageing.patience(150)


def compose(params: Params, limits: EngineLimits, step_budget: StepBudget) -> Policy:
    """Compose LARRY's order and admission, within `step_budget`."""
    return Policy(
        order=LoadAdaptiveOrder(params.alpha, params.patience, limits),
        admission=prompt_fits,
        step_budget=step_budget,
    )


Entry = tuple[float, int, int, RequestView]
"""(arrival, number in order of joining, blocks, request): sorts by age."""


class LoadAdaptiveOrder:
    """The waiting requests: the overdue in order of joining, then the others by LARRY's score.

    Joining and leaving take a few binary searches. Ranking opens sizes, smallest first and in step with the
    sizes of the oldest requests: all requests of an unopened size are larger and younger than what was
    reached, so they cost more than the two together.

    What is cached of a prompt is looked up by the step that places it, and now and then while it waits. One
    step places so many and no more; of thousands that arrive at once those that joined last wait at the end.
    """

    def __init__(self, alpha: int, patience: int, limits: EngineLimits) -> None:
        self._alpha = alpha
        self._limits = limits
        self._ageing = Ageing(patience, limits)
        self._joined = count()
        self._fresh: dict[RequestView, int] = {}  # blocks
        self._entries: OrderedDict[RequestView, Entry] = OrderedDict()
        self._by_age: list[Entry] = []
        self._by_size: dict[int, list[Entry]] = {}  # each by age
        self._sizes: list[int] = []  # keys of `_by_size`, ascending

    def add(self, request: RequestView) -> None:
        """Take in `request`, which joined the queue."""
        blocks = self._fresh[request] = self._limits.blocks(request.num_tokens)
        self._ageing.record_join(request, blocks)

    def discard(self, request: RequestView) -> None:
        """Forget `request`, which left the queue."""
        blocks = self._fresh.pop(request, None)
        self._ageing.record_leave(request, self._remove(request)[2] if blocks is None else blocks)

    def ranked(self, view: EngineView) -> Iterator[RequestView]:
        """Yield the overdue, then the other waiting requests, lowest cost first; equal costs by age."""
        self._settle(view)
        overdue = set()
        for request in chain(self._ageing.stalled(), self._ageing.overdue(view)):
            if request not in overdue:
                overdue.add(request)
                yield request
        for request in self._by_score():
            if request not in overdue:
                yield request
        for request in self._fresh:
            if request not in overdue:
                yield request

    def _settle(self, view: EngineView) -> None:
        """Place those that are new, and those of whom another part is cached than when they were placed."""
        may_change = self._limits.keeps_kv
        for request in rotate_waiting(self._entries) if may_change else ():
            _, number, before, _ = self._entries[request]
            blocks = self._size(request, view)
            if blocks != before:
                self._remove(request)
                self._place(request, number, before, blocks)
        for request in list(islice(self._fresh, PLACED_PER_STEP)):
            before = self._fresh.pop(request)
            blocks = self._size(request, view) if may_change else before
            self._place(request, next(self._joined), before, blocks)

    def _size(self, request: RequestView, view: EngineView) -> int:
        """Count the blocks of what has to be computed."""
        return self._limits.blocks(request.num_tokens - view.cached_tokens(request))

    def _place(self, request: RequestView, number: int, before: int, blocks: int) -> None:
        self._ageing.record_resize(before, blocks)
        entry = (request.arrival_time, number, blocks, request)
        self._entries[request] = entry
        insort(self._by_age, entry)
        same_size = self._by_size.get(blocks)
        if same_size is None:
            self._by_size[blocks] = [entry]
            insort(self._sizes, blocks)
        else:
            insort(same_size, entry)

    def _remove(self, request: RequestView) -> Entry:
        entry = self._entries.pop(request)
        del self._by_age[bisect_left(self._by_age, entry)]
        blocks = entry[2]
        same_size = self._by_size[blocks]
        del same_size[bisect_left(same_size, entry)]
        if not same_size:
            del self._by_size[blocks]
            del self._sizes[bisect_left(self._sizes, blocks)]
        return entry

    def _by_score(self) -> Iterator[RequestView]:
        if not self._by_age:
            return
        alpha, load, start = self._alpha, len(self._by_age), self._by_age[0][0]
        heads: list[tuple[float, Entry, int]] = []  # cost and place of the next request of each opened size
        opened = set()

        def offer(blocks: int, place: int) -> None:
            entry = self._by_size[blocks][place]
            heappush(heads, (alpha * (entry[0] - start) + load * blocks, entry, place))

        def take() -> RequestView:
            _, (_, _, blocks, request), place = heappop(heads)
            if place + 1 < len(self._by_size[blocks]):
                offer(blocks, place + 1)
            return request

        for (arrival, _, its_size, _), size in zip(self._by_age, self._sizes):  # noqa: B905 the sizes end first
            for blocks in (size, its_size):
                if blocks not in opened:
                    opened.add(blocks)
                    offer(blocks, 0)
            unopened = alpha * (arrival - start) + load * size
            while heads and heads[0][0] < unopened:
                yield take()
        while heads:
            yield take()
