"""What becomes of requests in a group of engines that share GPUs by turns: estimated, not step by step.

Between two events (a request arrives, has its first token, or ends) every engine is taken to go on evenly: it
has the share of the GPUs that `FairShare` would give it in the long run, all that it decodes goes on alike,
and steps hold waiting prompts as long as there are any. That is some hundred times as fast as the simulator
with vLLM's scheduler, and knows queues, batching, bursts and the limit of the KV cache; not prefixes that
prompts share, preemptions, or policies other than FCFS.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from headrace_operator.placement.problem import Request
from headrace_operator.placement.step_times import StepTimes

HANDED_OVER = 0.97  # of the time, computed while engines take turns: a slice of 20 ms, and 0.6 ms between two


@dataclass(slots=True)
class Load:
    """One engine of a group and the requests that it is sent, by time."""

    requests: Sequence[Request]
    times: StepTimes
    kv_tokens: int
    most_running: int
    mean_alone: float  # seconds of a request alone, by which a service's share is weighed


@dataclass(slots=True)
class Answered:
    """When a request had its first and its last token, in seconds from its arrival."""

    ttft: float = 0.0
    e2e: float = 0.0


def serve_group(loads: Sequence[Load]) -> list[list[Answered]]:
    """Serve every engine's requests to the end. One that is longer than the KV cache is served alone."""
    engines = [_Engine(load) for load in loads]
    arrivals = sorted(
        (request.at, place, number)
        for place, load in enumerate(loads)
        for number, request in enumerate(load.requests)
    )
    now = 0.0
    for at, place, number in arrivals:
        now = _go_on(engines, now, at)
        engines[place].add(number)
    _go_on(engines, now, inf)
    return [engine.answered for engine in engines]


def _go_on(engines: Sequence[_Engine], now: float, until: float) -> float:
    """Carry out all that happens before `until`; returns the time that it is then."""
    while True:
        active = [engine for engine in engines if engine.due < inf]
        if not active:
            return until
        whole = sum(engine.weight for engine in active) / (HANDED_OVER if len(active) > 1 else 1)
        shares = [engine.weight / whole for engine in active]
        waits = [engine.due / share for engine, share in zip(active, shares, strict=True)]
        wait = min(waits)
        last = now + wait >= until
        for engine, share in zip(active, shares, strict=True):
            engine.compute((until - now if last else wait) * share)
        if last:
            return until
        now += wait
        active[waits.index(wait)].settle(now)


@dataclass(slots=True)
class _Engine:
    """One engine. Its own seconds are those of the GPUs that it has had; `due`: of those until it settles."""

    load: Load
    answered: list[Answered] = field(init=False)
    due: float = inf
    weight: float = 0.0
    _waiting: deque[int] = field(default_factory=deque)
    _prefilling: list[int] = field(default_factory=list)
    _prefill_left: float = 0.0
    _decoding: list[tuple[float, int]] = field(default_factory=list)  # by how many tokens each ends
    _tokens: float = 0.0  # that whoever decodes has had since the beginning
    _rate: float = 0.0  # of those per own second
    _context: float = 0.0  # tokens of all that decode, less `_tokens` for each
    _held: float = 0.0  # tokens of KV, on average over each request's time

    def __post_init__(self) -> None:
        self.answered = [Answered() for _ in self.load.requests]

    def add(self, number: int) -> None:
        self._waiting.append(number)
        if self._prefilling:
            self._weigh()
        else:
            self._plan()

    def compute(self, seconds: float) -> None:
        """Have the GPUs for so long."""
        self.due -= seconds
        self._tokens += seconds * self._rate
        if self._prefilling:
            self._prefill_left -= seconds

    def settle(self, now: float) -> None:
        """Carry out what is due."""
        if self._prefilling and self._prefill_left <= 1e-9:
            self._start_decoding(now)
        while self._decoding and self._decoding[0][0] <= self._tokens + 1e-6:
            last, number = heapq.heappop(self._decoding)
            request = self.load.requests[number]
            self._context -= request.tokens - last
            self._end(number, now)
        if self._prefilling:
            self._set_due()
        else:
            self._plan()

    def _start_decoding(self, now: float) -> None:
        for number in self._prefilling:
            request = self.load.requests[number]
            self.answered[number].ttft = now - request.at + self.load.times.intake
            if request.output_tokens < 2:
                self._end(number, now)
            else:
                last = self._tokens + request.output_tokens - 1
                heapq.heappush(self._decoding, (last, number))
                self._context += request.tokens - last
        self._prefilling = []

    def _end(self, number: int, now: float) -> None:
        request = self.load.requests[number]
        self.answered[number].e2e = now - request.at + self.load.times.intake
        self._held -= request.mean_context

    def _plan(self) -> None:
        """Begin with the prompts that fit into a step, or go on decoding."""
        load, times = self.load, self.load.times
        tokens = 0
        while self._waiting and len(self._decoding) + len(self._prefilling) < load.most_running:
            request = load.requests[self._waiting[0]]
            tokens += request.prompt_tokens
            if self._prefilling and tokens + len(self._decoding) > times.step_tokens:
                break
            if self._held + request.mean_context > load.kv_tokens and (self._decoding or self._prefilling):
                break
            self._held += request.mean_context
            self._prefilling.append(self._waiting.popleft())
        running = len(self._decoding)
        context = int(self._context + running * self._tokens)
        if self._prefilling:
            prompts = [load.requests[number].prompt_tokens for number in self._prefilling]
            self._prefill_left, steps = times.prefill(prompts, running, context)
            self._rate = steps / self._prefill_left if running else 0.0
        else:
            self._rate = 1 / times.decode(running, context) if running else 0.0
        self._weigh()
        self._set_due()

    def _weigh(self) -> None:
        requests = len(self._waiting) + len(self._prefilling) + len(self._decoding)
        self.weight = requests / self.load.mean_alone

    def _set_due(self) -> None:
        ends = (self._decoding[0][0] - self._tokens) / self._rate if self._decoding else inf
        self.due = min(self._prefill_left if self._prefilling else inf, max(ends, 0.0))
