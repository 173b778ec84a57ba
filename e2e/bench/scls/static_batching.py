"""Workers that batch statically, and the schedulers of the SCLS paper before them, on a virtual clock.

Nothing of Headrace's own is in it: it says what the paper's system does in the paper's setting.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from e2e.bench.scls import batching, offload
from e2e.bench.scls.static_engines import StaticEngine
from headrace_engine.sim.workloads.arrival import Arrival

LONGEST = 1024  # tokens of a prompt, and of an output: the limit of a batch that is not cut into slices
SLICE = 128  # tokens


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheduler of the paper's section 5.

    `batching`: `Arrival` leaves it to each worker, which takes what waits there, first come first served and
    up to the engine's fixed batch size; `Padding` splits what waits in a pool into batches of that size at
    most, `Memory` into batches of as many as fit.
    """

    slice: int = SLICE
    batching: Literal["Arrival", "Padding", "Memory"] = "Memory"
    max_min: bool = False  # to the least loaded worker; else to each in turn
    adaptive_interval: bool = False


SCHEMES = {
    "SLS": Scheme(LONGEST, "Arrival"),
    "SO": Scheme(batching="Arrival"),
    "PM": Scheme(batching="Padding"),
    "AB": Scheme(),
    "LB": Scheme(max_min=True),
    "SCLS": Scheme(max_min=True, adaptive_interval=True),
}
"""By the paper's names: sequences, slices, padding mitigated, adaptive batching, load balancing, all."""


@dataclass(slots=True, eq=False)
class Request:
    """One request; lengths in tokens."""

    arrival: Arrival
    generated: int = 0
    slices: int = 0
    padded: int = 0  # tokens of padding, over all slices
    invalid: int = 0  # tokens that it was made to generate after its end
    finished_at: float | None = None

    @property
    def length(self) -> int:
        """Input of its next slice: its prompt, and what was generated."""
        return self.arrival.prompt_tokens + self.generated

    @property
    def left(self) -> int:
        """Tokens that it is still to generate, which no scheduler knows."""
        return self.arrival.output_tokens - self.generated


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests that are served together, and the seconds that they were estimated to take."""

    requests: Sequence[Request]
    estimated: float


@dataclass(slots=True)
class Worker:
    """An engine with its queue, and when it last ended a batch, in seconds."""

    number: int
    queue: deque[Any] = field(default_factory=deque)  # of batches, or of requests where it makes them itself
    busy: bool = False
    ended_at: float = 0.0


@dataclass(slots=True)
class Served:
    """What became of all requests and batches."""

    requests: list[Request]
    workers: list[Worker]
    sizes: list[int] = field(default_factory=list)  # of the batches
    returned_early: int = 0  # batches of which all requests ended before the limit
    errors: list[float] = field(default_factory=list)  # seconds estimated beyond those taken, by batch


def serve(arrivals: Sequence[Arrival], engine: StaticEngine, scheme: Scheme, workers: int) -> Served:
    """Serve `arrivals`, sorted, to the end."""
    return _Run(
        engine, scheme, Served([Request(each) for each in arrivals], [Worker(n) for n in range(workers)])
    ).run()


class _Run:
    """One run: a heap of events, each what to call with what, at which second."""

    def __init__(self, engine: StaticEngine, scheme: Scheme, served: Served) -> None:
        self._engine, self._scheme, self._served = engine, scheme, served
        self._serving = engine.estimated()
        self._pool: list[Request] = []
        self._loads = [0.0] * len(served.workers)  # estimated seconds of what each has
        self._turn = count()
        self._unfinished = len(served.requests)
        self._events: list[tuple[float, int, Any, Any]] = []
        self._order = count()
        self.now = 0.0

    def run(self) -> Served:
        for request in self._served.requests:
            self._push(request.arrival.at, self._take, request)
        if self._scheme.batching != "Arrival":
            self._push(self._engine.least_interval, self._make_batches, None)
        while self._unfinished:
            self.now, _, call, what = heapq.heappop(self._events)
            call(what)
        return self._served

    def _push(self, at: float, call: Any, what: Any) -> None:
        heapq.heappush(self._events, (at, next(self._order), call, what))

    def _take(self, request: Request) -> None:
        """Take a request that is new, or whose slice has ended."""
        if self._scheme.batching == "Arrival":
            self._give(self._next_worker(), request)
        else:
            self._pool.append(request)

    def _make_batches(self, _: None) -> None:
        """Split all that waits into batches, give each to a worker, and say when to do so again."""
        pool = sorted(self._pool, key=lambda request: request.length)
        self._pool.clear()
        slice_ = self._scheme.slice
        lengths = [request.length for request in pool]
        parts = batching.split(lengths, self._serving, slice_, self._most)
        seconds = [self._serving.seconds(len(part), lengths[part[-1]], slice_) for part in parts]
        batches = [
            Batch([pool[place] for place in part], each) for part, each in zip(parts, seconds, strict=True)
        ]
        if self._scheme.max_min:
            given = [(batches[place], worker) for place, worker in offload.max_min(seconds, self._loads)]
        else:
            given = [(batch, self._next_worker()) for batch in batches]
        for batch, worker in given:
            self._loads[worker] += batch.estimated
            self._give(worker, batch)
        least = self._engine.least_interval
        adaptive = self._scheme.adaptive_interval
        self._push(
            self.now + (offload.interval(self._loads, least) if adaptive else least), self._make_batches, None
        )

    def _most(self, longest: int) -> int:
        fitting = self._engine.most(longest)
        return min(fitting, self._engine.fixed) if self._scheme.batching == "Padding" else fitting

    def _next_worker(self) -> int:
        return next(self._turn) % len(self._served.workers)

    def _give(self, number: int, what: Any) -> None:
        worker = self._served.workers[number]
        worker.queue.append(what)
        if not worker.busy:
            self._begin(worker)

    def _begin(self, worker: Worker) -> None:
        """Begin a worker's next batch."""
        worker.busy = True
        batch = worker.queue.popleft()
        if isinstance(batch, Request):
            together = [batch]
            while worker.queue and len(together) < self._engine.fixed:
                together.append(worker.queue.popleft())
            batch = Batch(together, 0.0)
        length = max(request.length for request in batch.requests)
        iterations = min(self._scheme.slice, max(request.left for request in batch.requests))
        seconds = self._engine.seconds(len(batch.requests), length, iterations)
        for request in batch.requests:
            request.slices += 1
            request.padded += length - request.length
            request.invalid += max(0, iterations - request.left)
        self._served.sizes.append(len(batch.requests))
        self._served.returned_early += iterations < self._scheme.slice
        if batch.estimated:
            self._served.errors.append(batch.estimated - seconds)
        self._push(self.now + seconds, self._end, (worker, batch, iterations))

    def _end(self, ended: tuple[Worker, Batch, int]) -> None:
        """End a batch: return what has come to its end, send on the rest."""
        worker, batch, iterations = ended
        worker.ended_at = self.now
        self._loads[worker.number] -= batch.estimated
        for request in batch.requests:
            request.generated += min(iterations, request.left)
            if request.left:
                self._take(request)
            else:
                request.finished_at = self.now
                self._unfinished -= 1
        worker.busy = False
        if worker.queue:
            self._begin(worker)
