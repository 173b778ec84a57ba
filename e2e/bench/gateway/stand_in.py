"""A stand-in for one vLLM engine: a first-come first-served queue, chunked prefill, decode slots and KV.

Not vLLM: no model, no scheduler of vLLM's. What it shares with the real one is what a balancer can see: steps
of at most `budget` tokens in which the running requests decode first, prompts are computed in order of
arrival, new requests join only between two steps, and a step takes what the cost model says. KV for prompt
and answer is reserved when a request starts, so nothing is ever preempted.

Pure: times come in as numbers, so the same object runs in real time and on a virtual clock.
"""

from collections import deque
from dataclasses import dataclass, field
from math import ceil

from headrace_engine.contracts import EngineInfo, LoadReport
from headrace_engine.control.records import BoardRecord, ErrorCode, FinishedRequest, StepSample
from headrace_engine.cost.model import Batch, CostModel, chunk_work
from headrace_sidecar.estimates import Estimates
from headrace_sidecar.reports import NOTHING, load_report


@dataclass(frozen=True, slots=True)
class Limits:
    """What vLLM's settings of the same names do; `blocks` of `block_size` tokens is the KV cache."""

    budget: int = 2048
    slots: int = 256
    blocks: int = 27_000
    block_size: int = 16


@dataclass(slots=True)
class Request:
    """One request in the engine; times in seconds of the caller's clock."""

    prompt_tokens: int
    output_tokens: int
    arrived_at: float
    started_at: float = 0.0  # when the step with its first prompt token began
    first_token_at: float = 0.0
    finished_at: float = 0.0
    computed: int = 0  # prompt tokens
    produced: int = 0  # output tokens
    index: int = 0  # the caller's own

    @property
    def wait(self) -> float:
        """Return the seconds that the request spent in the queue."""
        return self.started_at - self.arrived_at


@dataclass(slots=True)
class StandIn:
    """The engine; `board` is what its sidecar would read now."""

    cost: CostModel
    limits: Limits = field(default_factory=Limits)
    arriving: list[Request] = field(default_factory=list)  # seen by the scheduler at the next step
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    free_blocks: int = 0
    arrivals: int = 0
    arrived_tokens: int = 0
    finishes: int = 0
    steps: int = 0
    board: BoardRecord = NOTHING
    samples: list[StepSample] = field(default_factory=list)  # the caller takes and clears these
    finished: list[FinishedRequest] = field(default_factory=list)
    _decoding: list[Request] = field(default_factory=list)
    _ending: list[Request] = field(default_factory=list)  # whose last prompt token is in this step

    def __post_init__(self) -> None:
        self.free_blocks = self.limits.blocks
        self._tell(0.0)

    @property
    def busy(self) -> bool:
        """Whether there is anything to compute."""
        return bool(self.arriving or self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Take a request in; raises ValueError if the KV cache could never hold it."""
        if self._blocks(request) > self.limits.blocks:
            raise ValueError(f"{request.prompt_tokens}+{request.output_tokens} tokens exceed the KV cache")
        self.arriving.append(request)

    def begin(self, now: float) -> float:
        """Plan a step at `now`; its seconds. The engine must be busy."""
        self.arrivals += len(self.arriving)
        self.arrived_tokens += sum(request.prompt_tokens for request in self.arriving)
        self.waiting.extend(self.arriving)
        self.arriving.clear()
        prefilling = [request for request in self.running if request.computed < request.prompt_tokens]
        self._decoding = [request for request in self.running if request.computed >= request.prompt_tokens]
        self._ending = []
        budget = self.limits.budget - len(self._decoding)
        tokens, work, chunks = 0, 0.0, 0
        while budget > 0:
            request = prefilling.pop(0) if prefilling else self._start(now)
            if request is None:
                break
            chunk = min(budget, request.prompt_tokens - request.computed)
            work += chunk_work(chunk, request.computed)
            request.computed += chunk
            tokens += chunk
            budget -= chunk
            chunks += 1
            if request.computed >= request.prompt_tokens:
                self._ending.append(request)
        context = sum(request.prompt_tokens + request.produced for request in self._decoding)
        batch = Batch(tokens, work, len(self._decoding), context, chunks)
        seconds = self.cost.step_seconds(batch)
        self.samples.append(StepSample(tokens, int(work), len(self._decoding), context, seconds))
        self.steps += 1
        self._tell(now)
        return seconds

    def end(self, now: float) -> list[Request]:
        """End the step that began; returns the requests that are complete."""
        done = []
        for request in self._ending:
            request.first_token_at = now
        for request in (*self._decoding, *self._ending):
            request.produced += 1
            if request.produced >= request.output_tokens:
                request.finished_at = now
                done.append(request)
        if done:
            gone = set(map(id, done))
            self.running = [request for request in self.running if id(request) not in gone]
            self.free_blocks += sum(map(self._blocks, done))
            self.finishes += len(done)
            self.finished.extend(map(_told, done))
        if not self.busy:
            self._tell(now)
        return done

    def _start(self, now: float) -> Request | None:
        if not self.waiting or len(self.running) >= self.limits.slots:
            return None
        needed = self._blocks(self.waiting[0])
        if needed > self.free_blocks:
            return None
        request = self.waiting.popleft()
        request.started_at = now
        self.free_blocks -= needed
        self.running.append(request)
        return request

    def _blocks(self, request: Request) -> int:
        return ceil((request.prompt_tokens + request.output_tokens) / self.limits.block_size)

    def _tell(self, now: float) -> None:
        size = self.limits.block_size
        self.board = BoardRecord(
            time=now,
            step=self.steps,
            running=len(self.running),
            waiting=len(self.waiting),
            waiting_prefill_tokens=sum(request.prompt_tokens for request in self.waiting),
            unfinished_prefill_tokens=sum(
                request.prompt_tokens - request.computed for request in self.running
            ),
            waiting_kv_blocks=sum(ceil(request.prompt_tokens / size) for request in self.waiting),
            free_kv_blocks=self.free_blocks,
            total_kv_blocks=self.limits.blocks,
            block_size=size,
            arrivals=self.arrivals,
            arrived_tokens=self.arrived_tokens,
            finishes=self.finishes,
            preemptions=0,
            fallback_steps=0,
            error_code=ErrorCode.NONE,
            applied_hash=0,
            disabled=False,
            max_step_tokens=self.limits.budget,
        )


def sidecar_report(engine: StandIn, estimates: Estimates, boot: str) -> LoadReport:
    """Return what the real sidecar would tell now; takes the engine's samples into the estimates."""
    estimates.add_steps(engine.samples)
    estimates.add_finished(engine.finished)
    engine.samples.clear()
    engine.finished.clear()
    info = EngineInfo("Running" if engine.busy else "Idle", boot=boot)
    rates = estimates.rates(engine.limits.budget)
    return load_report(info, engine.board, rates, serving=True)


def _told(request: Request) -> FinishedRequest:
    """Make what the sidecar learns of a finished request; it uses the lengths."""
    ttft, e2e = request.first_token_at - request.arrived_at, request.finished_at - request.arrived_at
    gap = (e2e - ttft) / (request.output_tokens - 1) if request.output_tokens > 1 else 0.0
    lengths = (request.prompt_tokens, request.output_tokens)
    return FinishedRequest(request.finished_at, *lengths, ttft, gap, gap, 0, e2e, request.wait, 0, 0, 0)
