"""The waiting queue that vLLM drains, showing it only what the step's plan admits.

vLLM's loop asks `bool(queue)`, peeks, perhaps pops, and asks again. Within a step the answers follow the
plan's iterator, pulled one request at a time; with no plan, or outside a step, the queue is vLLM's own FCFS
queue: order of joining, preempted and resumed requests in front. `len` always counts all.

Who joins or leaves is told to the policy, but never while a step's iterator is alive: changes within a step
are told after it, in their order, once the device computes. Whom vLLM took and put back, since its grammar is
not compiled yet or another LoRA adapter has no room, has waited all along: of those nothing is told, or they
would join anew in every step and never grow old.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import Request

from headrace_engine.adapter.resumption import resumption_of
from headrace_engine.policies.engine_view import EngineLimits, RequestView

Listener = Callable[[Request], None]


class PlanQueue(RequestQueue):
    """All waiting requests; `tokens` and `blocks` are what their prefill needs in sum."""

    def __init__(self, limits: EngineLimits, joined: Listener, left: Listener) -> None:
        self._limits = limits
        self._joined = joined
        self._left = left
        self._requests: OrderedDict[Request, int] = OrderedDict()  # → tokens when it joined
        self._admitted: Iterator[Request] | None = None
        self._head: Request | None = None
        self._untold: list[tuple[Listener, Request]] | None = None  # None: whatever happens is told at once
        self.tokens = 0
        self.blocks = 0

    def begin(self, admitted: Iterator[RequestView] | None) -> None:
        """Show what `admitted` yields, in its order; None: everything in the queue's own order.

        What there was to tell has to be told before.
        """
        self._admitted = cast("Iterator[Request] | None", admitted)  # what waits are vLLM's requests
        self._untold = []

    def show_all(self) -> None:
        """Show everything for the rest of the step."""
        self._admitted = self._head = None

    def tell(self) -> None:
        """Tell who joined and left in the last step, and since; not who left and was put back."""
        untold, self._untold = self._untold, None
        if not untold:
            return
        kept: list[tuple[Listener, Request] | None] = []
        away: dict[Request, int] = {}  # who left, and where `kept` says so
        for tell, request in untold:
            if tell is self._left:
                away[request] = len(kept)
            elif request in away:
                kept[away.pop(request)] = None
                continue
            kept.append((tell, request))
        for change in kept:
            if change is not None:
                tell, request = change
                tell(request)

    def add_request(self, request: Request) -> None:
        """Add a request at the end of the queue; one that was under way elsewhere at the front."""
        self._enter(request)
        if resumption_of(request) is not None:
            self._requests.move_to_end(request, last=False)

    def prepend_request(self, request: Request) -> None:
        """Add a request at the front of the queue."""
        self._enter(request)
        self._requests.move_to_end(request, last=False)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        """Add requests at the front of the queue one after the other, so the last given is first."""
        for request in requests:
            self.prepend_request(request)

    def peek_request(self) -> Request:
        """Return the request that vLLM shall try next; raises IndexError if there is none."""
        head = self._head
        if head is None:
            head = next(iter(self._requests), None) if self._admitted is None else self._pull()
        if head is None:
            raise IndexError("peek from an empty queue")
        return head

    def pop_request(self) -> Request:
        """Remove and return what `peek_request` shows."""
        request = self.peek_request()
        self._head = None
        self._leave(request)
        return request

    def remove_request(self, request: Request) -> None:
        """Remove `request` if it is here."""
        if request in self._requests:
            self._leave(request)

    def remove_requests(self, requests: Iterable[Request]) -> None:
        """Remove those of `requests` that are here."""
        for request in requests:
            self.remove_request(request)

    def __bool__(self) -> bool:
        if self._head is not None:
            return True
        return bool(self._requests) if self._admitted is None else self._pull() is not None

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __contains__(self, request: object) -> bool:
        return request in self._requests

    def _pull(self) -> Request | None:
        if self._admitted is not None:
            self._head = next(self._admitted, None)
        return self._head

    def _enter(self, request: Request) -> None:
        tokens = request.num_tokens
        self._requests[request] = tokens
        self.tokens += tokens
        self.blocks += self._limits.blocks(tokens)
        self._tell(self._joined, request)

    def _leave(self, request: Request) -> None:
        tokens = self._requests.pop(request)
        self.tokens -= tokens
        self.blocks -= self._limits.blocks(tokens)
        self._tell(self._left, request)

    def _tell(self, listener: Listener, request: Request) -> None:
        if self._untold is None:
            listener(request)
        else:
            self._untold.append((listener, request))
