"""The paper's form: prompts (PTs) fill the step, generation tasks (GTs) the KV cache [EconoServe, 3.3.1].

A waiting request is a PT. It starts on the reserve, and when its prompt is done it waits as a GT, with its
KV, until main has room for its padded output, or another GT lends it some. If no GT waits and main has room
for all of it, it starts as both at once (ours: else a PT could not start beyond the reserve while most of the
cache is free). One GT always generates, whatever the books say.

Who outgrows its allotment takes from the reserve; if that is used up, it waits with its KV and a new
prediction. A guest that is not done when its host needs the room back does the same, but must give its KV
back: it is preempted and computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headrace_engine.policies.admission import prefill_fits
from headrace_engine.policies.econoserve.padded_lengths import PaddedLengths
from headrace_engine.policies.econoserve.task_queue import Deadlines
from headrace_engine.policies.engine_view import EngineLimits, EngineView, RequestView
from headrace_engine.policies.plan import NO_LIMITS, RunningLimits
from headrace_engine.sim.published_econoserve.ledger import Group, Ledger, Task
from headrace_engine.sim.published_econoserve.rankings import SearchedQueue, time_range

OCCUPIED_RANGE = 128  # tokens of KV held that count as the same, like the paper's ranges of lengths


@dataclass(frozen=True, slots=True)
class Variant:
    """Which of the paper's methods are on; all of them is EconoServe, none of them its variant D."""

    synced: bool  # groups that start and end together
    ordered: bool  # GTs by three keys; who does not fit is left out, not waited for
    searched: bool  # PTs too: the queue is by length, and what fits is found by bisection
    pipelined: bool  # hosts and hosted
    buffer_percent: int  # of a lent room that stays empty


@dataclass(slots=True)
class Tasks:
    """The GT side (`limit_running`) and the PT side (`admit`) of one step, over the same ledger."""

    limits: EngineLimits
    variant: Variant
    lengths: PaddedLengths
    ledger: Ledger
    queue: SearchedQueue
    deadlines: Deadlines
    _groups: dict[int, Group] = field(default_factory=dict)  # of this step, by allotted blocks
    _waiting: int = 0  # GTs, after this step's were let in
    _holding: frozenset[RequestView] = frozenset()  # in this step; they can't be skipped, nor generate

    def limit_running(self, view: EngineView) -> RunningLimits:
        """Begin a step: settle what happened, let waiting GTs in, have the others skip it."""
        self._groups.clear()
        self._holding = frozenset(view.holding)
        self._settle(view)
        self._share(view)
        preempted = self._outgrown()
        waiting = [
            task for task in self.ledger.tasks.values() if _waits(task) and task.request not in self._holding
        ]
        waiting = self._let_in(waiting, view)
        self._waiting = len(waiting)
        short = view.free_blocks < len(view.running) * self.limits.kv_groups
        if not (waiting or preempted or short):
            return NO_LIMITS
        skipped = {task.request for task in waiting}
        return RunningLimits(self._by_worth(view) if short else None, skipped, preempted)

    def admit(self, ranked: Iterable[RequestView], view: EngineView) -> Iterator[RequestView]:
        """Start PTs in order; if one does not fit, and the variant says so, the longest that do."""
        started = set()
        for request in ranked:
            if not self._start(request, view):
                break
            started.add(request)
            yield request
        else:
            return
        if not self.variant.searched or request in self.queue.overdue:
            return
        room = min(self.ledger.reserve, view.free_blocks - view.promised_blocks)
        for smaller in self.queue.longest_within(self.limits.tokens(room)):
            if smaller not in started and not self._start(smaller, view):
                return
            if smaller not in started:
                yield smaller

    def gauges(self) -> tuple[float, float, float]:
        """Return what of the cache is allotted, in percent; tasks that wait with their KV; tasks hosted."""
        left = self.ledger.free + self.ledger.reserve
        return 100 * (1 - left / self.limits.total_blocks), self._waiting, self.ledger.hosted

    def _start(self, request: RequestView, view: EngineView) -> bool:
        if view.running and not prefill_fits(request, view):
            return False
        ledger, left, shared = (
            self.ledger,
            self.lengths.predict_left(request, view),
            view.shared_blocks(request),
        )
        blocks = self.limits.blocks(request.num_tokens) - shared
        if not self._waiting and ledger.free >= self.limits.blocks(request.num_tokens + left) - shared:
            ledger.allot(ledger.start_prompt(request, shared), left, self._group(left))
        elif not self._waiting and ledger.free >= blocks and (room := self._room(left)):
            ledger.lodge(ledger.start_prompt(request, shared), left, *room)
        elif ledger.reserve >= blocks or not (view.running or self._holding):
            ledger.start_prompt(request, shared)
        else:
            return False
        return True

    def _settle(self, view: EngineView) -> None:
        """Strike off who is gone; take on who runs unknown to the books, as after a change of policy."""
        running, tasks = {*view.running, *self._holding}, self.ledger.tasks
        if tasks.keys() == running:
            return
        for request in [each for each in tasks if each not in running]:
            self.ledger.close(request)
        for request in (*view.running, *self._holding):
            if request not in tasks:
                task = self.ledger.start_prompt(request, view.shared_blocks(request))
                self.ledger.allot(task, self.lengths.predict_left(request, view), None)

    def _share(self, view: EngineView) -> None:
        """Share a beginning that one held alone with those who have started on it."""
        if self.ledger.joined_others:
            self.ledger.joined_others = False
            for task in self.ledger.tasks.values():
                self.ledger.share(task, view.shared_blocks(task.request))

    def _outgrown(self) -> list[RequestView]:
        """Extend or suspend who is at the end of its allotment; the guests that have to go."""
        preempted = []
        for task in self.ledger.tasks.values():
            tokens, host = task.request.num_tokens, task.host
            if not task.generates or task.request in self._holding:
                continue
            if host is not None and (host.request.num_tokens >= task.return_at or tokens >= task.limit):
                if not self.ledger.extend(task, tokens + 1):
                    preempted.append(task.request)
            elif tokens >= task.limit and not self.ledger.extend(task, tokens + 1):
                self.ledger.suspend(task)
        return preempted

    def _let_in(self, waiting: list[Task], view: EngineView) -> list[Task]:
        """Let GTs generate as far as there is room; gives those that go on waiting."""
        if not waiting:
            return waiting
        if self.variant.ordered:
            waiting.sort(key=lambda task: self._three_keys(task, view))
        stay = []
        for place, task in enumerate(waiting):
            tokens, left = task.request.num_tokens, self.lengths.predict_left(task.request, view)
            if self.ledger.missing(task, tokens + left) <= self.ledger.free:
                self.ledger.allot(task, left, self._group(left))
            elif self.ledger.missing(task, tokens) <= self.ledger.free and (room := self._room(left)):
                self.ledger.lodge(task, left, *room)
            else:
                stay.append(task)
                if not self.variant.ordered:
                    stay += waiting[place + 1 :]
                    break
        tasks = self.ledger.tasks.values()
        if stay and not any(task.generates and task.request not in self._holding for task in tasks):
            first = stay.pop(0)
            self.ledger.allot(first, self.lengths.predict_left(first.request, view), None)
        return stay

    def _three_keys(self, task: Task, view: EngineView) -> tuple[int, int, int]:
        latest = self.deadlines.latest_start(task.request, view)
        held = task.request.num_tokens // OCCUPIED_RANGE
        return time_range(task.request, view, latest), -held, -self.lengths.predict_left(task.request, view)

    def _room(self, left: int) -> tuple[Task, int] | None:
        """Find the shortest room of a host that `left` tokens fit into, with its length."""
        if not self.variant.pipelined:
            return None
        share, best, found = (100 - self.variant.buffer_percent) / 100, 0, None
        for task in self.ledger.tasks.values():
            if not task.generates:
                continue
            for lent, until in self.ledger.lent_by(task, left):
                if left <= min(lent * share, until) and (found is None or lent < best):
                    found, best = (task, lent), lent
        return found

    def _group(self, left: int) -> Group | None:
        return self._groups.setdefault(self.limits.blocks(left), Group()) if self.variant.synced else None

    def _by_worth(self, view: EngineView) -> list[RequestView]:
        """Order what runs for vLLM, which preempts from the end: waiting GTs, guests, then prompts."""
        tasks = self.ledger.tasks

        def worth(request: RequestView) -> int:
            task = tasks[request]
            return 3 if _waits(task) else 2 if task.host is not None else 1 if _in_prefill(request) else 0

        return sorted(view.running, key=worth)


def _in_prefill(request: RequestView) -> bool:
    return request.num_computed_tokens < request.num_tokens - 1


def _waits(task: Task) -> bool:
    return not task.generates and not _in_prefill(task.request)
