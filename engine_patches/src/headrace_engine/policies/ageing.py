"""Ageing: which requests have been passed over for too long. Ours; the papers leave it open.

How long serving in order of arrival makes anyone wait shows without a clock: for as long as the engine takes
to start the work that waits when the queue is deepest. So a request is overdue once the engine has started
more than `patience` percent of that since the request joined. The bound is in work and needs no estimate
of the engine's speed, and since work is what waits, one value suits every load.

A request's work is what it takes of what is scarce. While there are free slots that is KV: the blocks of what
it has to compute, and the output that a running request holds on average. While all slots are taken every
start is alike, and counts as the average start does. Both are sampled at each look, the output from one
running request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import field
from itertools import chain

from headrace_engine.policies.engine_view import EngineLimits, EngineView, RequestView
from headrace_engine.policies.parameters import doc

FORGOTTEN_LATE = 256  # requests that ended
SAMPLES = 64  # about so many looks make the average output


def patience(default: int) -> int:
    """Declare the field of a policy's `Params`, in percent; 0 turns the ageing off."""
    return field(
        default=default,
        metadata=doc(
            "How much may overtake a request: once the engine has started this much work since it joined, it"
            " goes ahead of all others. 100 is the most work that has waited at once since the queue was last"
            " empty, which bounds waiting about as order of arrival would. Lower it where the longest waits"
            " are too long; raise it where the mean counts for more. 0 never moves anyone ahead, and long"
            " requests may starve.",
            unit="percent",
            minimum=0,
            maximum=10_000,
        ),
    )


class Ageing:
    """Follows who joins and leaves a queue; each change costs the same however long the queue is.

    Whoever leaves without starting counts as started. A preempted request is as old as if it had waited all
    along: somebody reads its output, which stands still until it goes on.
    """

    def __init__(self, patience: int, limits: EngineLimits) -> None:
        self._patience = patience / 100  # 0: nobody is ever overdue
        self._limits = limits
        self._marks: OrderedDict[RequestView, tuple[int, int]] = OrderedDict()  # started when it joined
        self._back: dict[RequestView, tuple[int, int]] = {}  # likewise, of those that have run before
        self._ran: dict[str, tuple[int, int]] = {}  # and of those that run now, by their id
        self._started = self._blocks_started = 0  # requests, and their blocks
        self._blocks = 0  # waiting
        self._deepest = 0.0  # most work that waited since the queue was empty, in blocks
        self._output = 0.0  # blocks beyond the prompt that a running request holds on average
        self._full = 0.0  # share of the looks at which all slots were taken
        self._looks = 0

    def record_join(self, request: RequestView, blocks: int) -> None:
        """Take in that `request` joined the queue with this many blocks."""
        mark = self._ran.pop(request.request_id, None)
        if mark is not None and request.num_preemptions:
            self._back[request] = mark
        else:
            self._marks[request] = (self._started, self._blocks_started)
        self._blocks += blocks

    def record_resize(self, before: int, blocks: int) -> None:
        """Take in that a waiting request has this many blocks, not `before`: its prompt is cached, or not."""
        self._blocks += blocks - before

    def record_leave(self, request: RequestView, blocks: int) -> None:
        """Take in that `request`, which counted this many blocks, left the queue."""
        mark = self._back.pop(request, None)
        self._ran[request.request_id] = self._marks.pop(request) if mark is None else mark
        self._blocks -= blocks
        self._started += 1
        self._blocks_started += blocks
        if not (self._marks or self._back):
            self._deepest = 0.0

    def stalled(self) -> Iterator[RequestView]:
        """Yield those that have run before and lost their KV, the oldest first."""
        if self._patience and self._back:
            yield from sorted(self._back, key=self._back.__getitem__)

    def overdue(self, view: EngineView) -> Iterator[RequestView]:
        """Yield the requests that are overdue at this step: who has run before, then in order of joining."""
        self._forget(view)
        if not self._patience:
            return
        self._sample(view)
        each, scale = self._work()
        self._deepest = max(self._deepest, self._blocks * scale + (len(self._marks) + len(self._back)) * each)
        allowed = self._patience * self._deepest
        back = ((request, self._back[request]) for request in self.stalled())
        for request, (started, blocks_started) in chain(back, self._marks.items()):
            passed = (self._blocks_started - blocks_started) * scale + (self._started - started) * each
            if passed > allowed:
                yield request
            elif request not in self._back:
                return

    def _forget(self, view: EngineView) -> None:
        """Drop those that ended, once they are most: nobody tells of them here."""
        if len(self._ran) > 2 * len(view.running) + FORGOTTEN_LATE:
            alive = [request.request_id for request in chain(view.running, view.holding)]
            self._ran = {name: self._ran[name] for name in alive if name in self._ran}

    def _work(self) -> tuple[float, float]:
        """Return the work of a request: so much for itself, and so much for each of its blocks."""
        average = self._blocks_started / self._started if self._started else 0.0
        return self._output + self._full * average, 1 - self._full

    def _sample(self, view: EngineView) -> None:
        running = view.running
        if not running:
            return
        request = running[self._looks % len(running)]
        self._looks += 1
        weight = 1 / min(self._looks, SAMPLES)
        output = (request.num_tokens - request.num_prompt_tokens) / self._limits.block_size
        self._output += (output * self._limits.kv_groups - self._output) * weight
        self._full += ((len(running) >= self._limits.max_running) - self._full) * weight
