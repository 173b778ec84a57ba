"""A skip-join multi-level feedback queue, as FastServe has it: whoever has had little work done goes first.

A request joins the first level whose quantum covers its prefill, and sinks one level with each quantum of
work that it has used up. Who waited for too long is promoted to the first level, and starts there anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace_engine.policies.admission import prompt_fits
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.engine_view import EngineLimits, EngineView, RequestView
from headrace_engine.policies.plan import NO_LIMITS, RunningLimits
from headrace_engine.sim.baselines.parts import DECODE_WORK, SortedOrder, budget_of
from headrace_engine.sim.clock import Compose

LEVELS = 5  # of FastServe's queue [EconoServe, section 2.1]
QUANTUM = 512  # of FastServe's first level, prompt tokens of work; ours: five levels span what requests need
QUANTUM_RATIO = 4  # of a level to the one above
STARVATION = 30.0  # seconds of waiting at a time


def mlfq(step_budget: int = 0, starvation: float = STARVATION) -> Compose:
    """Order by level, then arrival; KV is allocated as vLLM does, and the lowest level loses its own.

    It does so where KV is short for those that run, and where a higher level waits and has no room.
    """

    def compose(limits: EngineLimits) -> Policy:  # noqa: ARG001
        order = FeedbackQueue(starvation)

        def limiter(view: EngineView) -> RunningLimits:
            if not view.running:
                return NO_LIMITS
            running = sorted(view.running, key=order.rank)
            return RunningLimits(running=running, preempted=_lower(order, running, view))

        return Policy(order, prompt_fits, budget_of(step_budget), limiter)

    return compose


class FeedbackQueue:
    """The waiting requests by level, equals by arrival. `starvation`: seconds of waiting until promotion."""

    def __init__(self, starvation: float) -> None:
        self._starvation = starvation
        self._sorted = SortedOrder(self.rank)
        self._since: dict[RequestView, float] = {}  # in order of joining
        self._joined: dict[RequestView, None] = {}  # since the last step
        self._promoted: dict[RequestView, int] = {}  # output that it had when it was promoted

    def rank(self, request: RequestView) -> tuple[int, float]:
        """Return what the queue is sorted by: level, and arrival."""
        had = self._promoted.get(request)
        if had is None:
            return level(request.num_prompt_tokens, request.num_output_tokens), request.arrival_time
        return level(0, request.num_output_tokens - had), request.arrival_time

    def add(self, request: RequestView) -> None:
        """Take in `request`, which joined the queue."""
        self._sorted.add(request)
        self._joined[request] = None

    def discard(self, request: RequestView) -> None:
        """Forget `request`, which left the queue."""
        self._sorted.discard(request)
        self._since.pop(request, None)
        self._joined.pop(request, None)

    def ranked(self, view: EngineView) -> Iterator[RequestView]:
        """Promote who starves, and return the waiting requests, highest level first."""
        self._promote(view.now)
        return self._sorted.ranked(view)

    def _promote(self, now: float) -> None:
        """Put those at the first level that have waited for too long."""
        self._since |= dict.fromkeys(self._joined, now)
        self._joined.clear()
        for request, since in list(self._since.items()):
            if now - since <= self._starvation:
                break
            self._sorted.discard(request)
            self._promoted[request] = request.num_output_tokens
            self._sorted.add(request)
            del self._since[request]


def level(prompt_tokens: int, output_tokens: int) -> int:
    """Return FastServe's level, 0 the highest, of a request with this prompt and so much output so far."""
    here, quantum = 0, QUANTUM
    while here < LEVELS - 1 and prompt_tokens > quantum:
        here, quantum = here + 1, quantum * QUANTUM_RATIO
    used = prompt_tokens + DECODE_WORK * output_tokens
    while here < LEVELS - 1 and used > quantum:
        used -= quantum
        here, quantum = here + 1, quantum * QUANTUM_RATIO
    return here


def _lower(order: FeedbackQueue, running: list[RequestView], view: EngineView) -> list[RequestView]:
    """Return who makes room for the queue's first: lower levels, lowest first; nobody if too few do."""
    first = next(order.ranked(view), None)
    if first is None:
        return []
    needed = view.limits.blocks(first.num_tokens) - view.shared_blocks(first)
    room = view.free_blocks - view.promised_blocks
    slots = view.limits.max_running - len(running)
    level_of_first = order.rank(first)[0]
    victims: list[RequestView] = []
    for request in reversed(running):
        if (needed <= room and slots > 0) or order.rank(request)[0] <= level_of_first:
            break
        victims.append(request)
        room += view.limits.blocks(request.num_tokens) - view.shared_blocks(request)
        slots += 1
    return victims if needed <= room and slots > 0 else []
