"""Slices: a request that has had its share steps back when another waits for room. Works with any policy.

A request runs for a slice of so many output tokens, as in slice-level scheduling [SCLS, section 4], but
inside one engine: it ends there only where one that has not had a slice yet finds no room, and goes on
otherwise. Who stepped back loses its KV, of which the prefix cache keeps what nobody else takes, and goes on
once there is room to spare. So what the engine has too little of goes to those who had least, as where output
lengths were known and short ones went first.

What is ours:

- Each further slice of a request counts for twice as many tokens as its last: of those who could step back
  those do who had by far most, and of those who wait to go on the others go first.
- Room to spare. Who goes on needs a part of all KV beyond its own: what runs grows, and without that part it
  soon makes room again, for nothing.
- It never thrashes. Who steps back has had a first slice at least since it last started, and a token for at
  most eight that are then computed anew.
- Patience. Who has waited for so long since it lost its KV goes ahead of all, one request at a time: with
  more, an overloaded engine would serve in order of arrival, and compute everything anew on top.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, count
from math import inf

from headrace_engine.policies.admission import prefill_fits, prompt_fits
from headrace_engine.policies.composition import Limiter, Order, Policy
from headrace_engine.policies.engine_view import EngineView, RequestView
from headrace_engine.policies.plan import NO_LIMITS, RunningLimits

GAUGES = {"stepped_back": "running requests that made room after a slice, since the policy was set"}
MOST = 8  # requests that step back in one step
MOST_ANEW = 8  # tokens that are computed anew for one that was produced, at most
SPARE = 0.05  # of all KV, beyond what a request needs that goes on
FORGOTTEN_LATE = 256  # requests that ended


def slice_policy(policy: Policy, tokens: int, patience: float) -> Policy:
    """Compose `policy` with slices of `tokens` output tokens at first, and `patience` in seconds.

    A policy without an admission of its own admits whole prompts: what starts shall not soon lose its KV.
    """
    queue = SliceQueue(policy.order or ArrivalOrder(), tokens, patience)

    def gauges() -> Sequence[float]:
        own = () if policy.gauges is None else policy.gauges()
        return *own, queue.stepped_back

    return replace(
        policy,
        order=queue,
        admission=policy.admission or prompt_fits,
        limiter=SliceLimiter(policy.limiter, queue),
        gauges=gauges,
    )


def count_slices(output: int, tokens: int) -> int:
    """Count the slices that so many output tokens make up.

    `tokens`: of a request's first slice; each further one is twice as long.
    """
    return (output // tokens + 1).bit_length() - 1


class ArrivalOrder:
    """The waiting requests as vLLM has them: who lost its KV, the latest first, then in order of joining."""

    def __init__(self) -> None:
        self._lost: dict[RequestView, None] = {}
        self._joined: dict[RequestView, None] = {}

    def add(self, request: RequestView) -> None:
        """Take in that `request` joined the queue."""
        (self._lost if request.num_preemptions else self._joined)[request] = None

    def discard(self, request: RequestView) -> None:
        """Forget `request`, which left the queue."""
        del (self._lost if request in self._lost else self._joined)[request]

    def ranked(self, view: EngineView) -> Iterator[RequestView]:  # noqa: ARG002
        """Yield the waiting requests, first come first."""
        yield from reversed(self._lost)
        yield from self._joined


Entry = tuple[int, int, RequestView]
"""(slices ended, number in order of joining the queue, request)."""


class SliceQueue:
    """The waiting requests: by a policy's own order, then those that have had a slice.

    `tokens`: of the first slice. `patience`: seconds.
    """

    def __init__(self, inner: Order, tokens: int, patience: float) -> None:
        self._inner = inner
        self._tokens = tokens
        self._patience = patience
        self._now = -inf  # of the step under way; before the first one -inf
        self._numbers = count()
        self._began: dict[str, int] = {}  # output tokens that a request had as it last left the queue, by id
        self._back: dict[RequestView, tuple[Entry, float]] = {}  # since when, in order of joining
        self._sorted: list[Entry] = []
        self._stepping: set[str] = set()  # those told to in the step under way
        self._late: RequestView | None = None  # whom the step under way puts ahead of all
        self._hurried: RequestView | None = None  # who started so; the next one waits for it
        self.stepped_back = 0  # in sum

    def add(self, request: RequestView) -> None:
        """Take in that `request` joined the queue: it is new, comes from another engine, or lost its KV."""
        if request.request_id in self._stepping:
            self.stepped_back += 1
        if slices := self._slices(request):
            entry = (slices, next(self._numbers), request)
            self._back[request] = entry, self._now
            insort(self._sorted, entry)
        else:
            self._inner.add(request)

    def discard(self, request: RequestView) -> None:
        """Take in that `request` left the queue."""
        self._began[request.request_id] = request.num_output_tokens
        found = self._back.pop(request, None)
        if found is None:
            self._inner.discard(request)
            return
        del self._sorted[bisect_left(self._sorted, found[0])]
        if request is self._late:
            self._hurried = request

    def ranked(self, view: EngineView) -> Iterator[RequestView]:
        """Yield who is late, the new by the policy's order, then those for whom there is room to spare."""
        late = self._late = self._find_late(view)
        if late is not None:
            yield late
        yield from self._inner.ranked(view)
        spare = int(SPARE * view.limits.total_blocks)
        for _, _, request in self._sorted:
            if view.running and not prefill_fits(request, view, spare):
                return
            if request is not late:
                yield request

    def begin_step(self, view: EngineView) -> None:
        """Take in that a step begins."""
        if self._now == -inf:  # who waited before the policy was set waits since now
            self._back = {request: (entry, view.now) for request, (entry, _) in self._back.items()}
        self._now = view.now
        self._stepping.clear()

    def step_back(self, view: EngineView) -> list[RequestView]:
        """Choose who steps back so that who is late can start, or else the first new one.

        Nobody does unless that is enough. Of those who can, who has had most slices goes first, of equals who
        has had most since it last started.
        """
        self._forget_ended(view)
        first = self._find_late(view)
        if first is None:
            first = next(self._inner.ranked(view), None)
        if first is None:
            return []
        slots = view.limits.max_running - len(view.running)
        if slots > 0 and prefill_fits(first, view):
            return []
        found = [
            (self._slices(request), produced, place)
            for place, request in enumerate(view.running)
            if (produced := self._produced(request)) >= max(self._tokens, request.num_tokens / MOST_ANEW)
        ]
        room = view.free_blocks - view.promised_blocks
        needed = view.limits.blocks(first.num_tokens) - view.shared_blocks(first)
        victims: list[RequestView] = []
        for _, _, place in sorted(found, reverse=True)[:MOST]:
            request = view.running[place]
            victims.append(request)
            room += view.limits.blocks(request.num_tokens) - view.shared_blocks(request)
            slots += 1
            if needed <= room and slots > 0:
                self._stepping.update(each.request_id for each in victims)
                return victims
        return []

    def _find_late(self, view: EngineView) -> RequestView | None:
        """Return who has waited for longest to go on, if too long and none is ahead already."""
        request = next(iter(self._back), None)
        if request is None or view.now - self._back[request][1] < self._patience:
            return None
        if self._hurried is not None:
            runs = any(each is self._hurried for each in view.running)
            if runs and self._produced(self._hurried) < self._tokens:
                return None
            self._hurried = None
        return request

    def _slices(self, request: RequestView) -> int:
        return count_slices(request.num_output_tokens, self._tokens)

    def _produced(self, request: RequestView) -> int:
        """Count its output tokens since it last started; all that it has if it ran before the policy did."""
        return request.num_output_tokens - self._began.get(request.request_id, 0)

    def _forget_ended(self, view: EngineView) -> None:
        """Drop those that ended, once they are most: nobody tells of them here."""
        alive = len(view.running) + len(view.waiting) + len(view.holding)
        if len(self._began) > 2 * alive + FORGOTTEN_LATE:
            names = {each.request_id for each in chain(view.running, view.waiting, view.holding)}
            self._began = {name: tokens for name, tokens in self._began.items() if name in names}


class SliceLimiter:
    """A policy's own limiter, and who steps back besides, unless that one preempts in the same step."""

    def __init__(self, inner: Limiter | None, queue: SliceQueue) -> None:
        self._inner = inner
        self._queue = queue

    def __call__(self, view: EngineView) -> RunningLimits:
        """Return what running requests give up in this step."""
        self._queue.begin_step(view)
        limits = NO_LIMITS if self._inner is None else self._inner(view)
        if not (view.waiting and view.running) or limits.preempted:
            return limits
        victims = self._queue.step_back(view)
        if not victims:
            return limits
        skipped = [request for request in limits.skipped if request not in victims]
        return replace(limits, preempted=victims, skipped=skipped)
