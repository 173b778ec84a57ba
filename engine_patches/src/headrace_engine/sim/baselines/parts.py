"""What the baselines have in common."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

from headrace_engine.policies.composition import Admission
from headrace_engine.policies.engine_view import EngineView, RequestView
from headrace_engine.policies.step_budget import StepBudget, engine_budget, fixed_budget

DECODE_WORK = 4  # an output token's engine time in prompt tokens; about that of Llama-3-8B on H100

Key = Callable[[RequestView], Any]
Blocks = Callable[[RequestView, EngineView], int]
"""KV blocks that are kept for a request from its start to its end."""


class SortedOrder:
    """The waiting requests by a key that does not change while they wait, equal keys in order of joining."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._joined = count()
        self._entries: dict[RequestView, tuple[Any, int, RequestView]] = {}
        self._sorted: list[tuple[Any, int, RequestView]] = []

    def add(self, request: RequestView) -> None:
        """Take in `request`, which joined the queue."""
        entry = self._entries[request] = (self._key(request), next(self._joined), request)
        insort(self._sorted, entry)

    def discard(self, request: RequestView) -> None:
        """Forget `request`, which left the queue."""
        entry = self._entries.pop(request)
        del self._sorted[bisect_left(self._sorted, entry)]

    def ranked(self, view: EngineView) -> Iterator[RequestView]:  # noqa: ARG002
        """Return the waiting requests, lowest key first."""
        return (request for _, _, request in self._sorted)

    def best(self) -> RequestView | None:
        """Return the waiting request with the lowest key; None if nobody waits."""
        return self._sorted[0][2] if self._sorted else None

    def up_to(self, key: Any) -> Iterator[RequestView]:
        """Yield those whose key is at most `key`, lowest first."""
        for its_key, _, request in self._sorted:
            if its_key > key:
                return
            yield request


def exact_blocks(request: RequestView, view: EngineView) -> int:
    """Allot exactly: for the prompt and the output that it will really have."""
    return view.limits.blocks(request.num_prompt_tokens + request.max_tokens)


def most_blocks(request: RequestView, view: EngineView) -> int:
    """Allot the most: for the prompt and the largest output that it may have, whatever it will have."""
    return view.limits.blocks(request.num_prompt_tokens + view.most_output(request))


def reserving(blocks: Blocks, batch: int | None = None) -> Admission:
    """Admit in order while the KV of all that run, to their ends, can be kept; `batch` requests at most.

    Whoever comes alone starts whatever it needs.
    """

    def admission(ranked: Iterable[RequestView], view: EngineView) -> Iterator[RequestView]:
        for request in ranked:
            if view.running and not has_room(request, view, blocks, batch):
                return
            yield request

    return admission


def has_room(request: RequestView, view: EngineView, blocks: Blocks, batch: int | None) -> bool:
    """Tell whether a place is free, and KV beside all that is kept for those that run."""
    if len(view.running) >= min(batch or view.limits.max_running, view.limits.max_running):
        return False
    kept = sum(blocks(each, view) for each in view.running)
    return kept + blocks(request, view) <= view.limits.total_blocks


def output_left(request: RequestView) -> int:
    """Count the output tokens that are still to come, truly."""
    return request.max_tokens - request.num_output_tokens


def true_work_left(request: RequestView) -> float:
    """Count prefill and true output left, in prompt tokens."""
    return request.num_tokens - request.num_computed_tokens + DECODE_WORK * output_left(request)


def fits(request: RequestView, view: EngineView) -> bool:
    """Tell whether a waiting request has a slot, and KV beside what the running ones still need."""
    room = view.free_blocks - view.promised_blocks
    return view.limits.blocks(request.num_tokens) <= room and len(view.running) < view.limits.max_running


def is_in_prefill(request: RequestView) -> bool:
    """Tell whether more than its next token is to be computed."""
    return request.num_tokens - request.num_computed_tokens > 1


def budget_of(tokens: int) -> StepBudget:
    """Make the budget of `tokens` per step, 0 for the engine's own."""
    return fixed_budget(tokens) if tokens else engine_budget
