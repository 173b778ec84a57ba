"""What a policy sees of its engine, live: nothing here is copied, and a value is as of when it is read.

While a plan is being carried out the engine allocates an admitted request's KV before it asks for the next
one, so an admission that reads `free_blocks` at each request needs no ledger of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace_engine.cost.model import CostModel

LONGEST = 1 << 24  # tokens; no model has a longer context


class RequestView(Protocol):
    """One request; vLLM's own `Request` is one. Compared and hashed by identity."""

    @property
    def request_id(self) -> str:
        """Unique in the engine."""

    @property
    def arrival_time(self) -> float:
        """When the API server received it, unix seconds."""

    @property
    def priority(self) -> int:
        """As the client sent it, lower is more urgent; 0 if it sent none."""

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""

    @property
    def num_tokens(self) -> int:
        """Prompt and output so far: what a preempted request has to prefill again."""

    @property
    def num_output_tokens(self) -> int:
        """Output so far."""

    @property
    def num_computed_tokens(self) -> int:
        """Tokens that have their KV; 0 in the queue."""

    @property
    def num_preemptions(self) -> int:
        """How often it lost its KV."""

    @property
    def max_tokens(self) -> int:
        """Most output tokens that it may produce; a policy asks `EngineView.most_output` instead.

        In the simulator it is what the request will produce, which only baselines with foresight may know.
        """


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What does not change while the engine lives."""

    block_size: int  # tokens per KV block
    kv_groups: int  # of layers that keep all tokens: each takes a KV block for `block_size` of them
    total_blocks: int  # that requests can hold
    max_step_tokens: int  # vLLM's --max-num-batched-tokens
    max_running: int  # vLLM's --max-num-seqs
    min_step_tokens: int = 1  # below it, an engine that can't split a prompt would never start it
    decode_tokens: int = 1  # of one request that generates, in a step: the next one and its drafts
    other_groups: tuple[tuple[int, int], ...] = ()  # tokens per block, and most blocks of one request
    keeps_kv: bool = True  # of what was computed once, for others; without, nobody shares or skips any

    def blocks(self, tokens: int) -> int:
        """Count the KV blocks that hold `tokens` tokens of one request."""
        whole = -(-tokens // self.block_size) * self.kv_groups
        return whole + self.other_blocks(tokens) if self.other_groups else whole

    def other_blocks(self, tokens: int) -> int:
        """Count those of them in layers with a sliding window or a state, which take only so many."""
        return sum(min(-(-tokens // size), most) for size, most in self.other_groups)

    def tokens(self, blocks: int) -> int:
        """Return the most tokens of one request that `blocks` KV blocks hold."""
        if not self.other_groups:
            return blocks // self.kv_groups * self.block_size
        return bisect_right(range(LONGEST), blocks, key=self.blocks) - 1

    def shared_tokens(self, blocks: int) -> int:
        """Return the tokens of one request that `EngineView.shared_blocks` of so many stand for."""
        return blocks // self.kv_groups * self.block_size if self.kv_groups else 0


@dataclass(frozen=True, slots=True)
class Targets:
    """What one request shall meet, in seconds from its arrival; `None`: no target."""

    ttft: float | None = None
    tpot: float | None = None  # mean time between two tokens
    e2e: float | None = None


NO_TARGETS = Targets()


class EngineView(Protocol):
    """One engine at the start of a step, and on as the step is filled."""

    @property
    def limits(self) -> EngineLimits:
        """The engine's constants."""

    @property
    def now(self) -> float:
        """Unix seconds, the same throughout a step."""

    @property
    def waiting(self) -> Collection[RequestView]:
        """The queue: preempted requests first, then by arrival at the scheduler.

        Requests leave it as they start, so what is iterated over beyond the plan has to be copied.
        """

    @property
    def running(self) -> Sequence[RequestView]:
        """Requests that hold KV; vLLM serves them in this order and preempts from the end."""

    @property
    def holding(self) -> Collection[RequestView]:
        """Requests that hold KV but neither run nor are in the queue: a KV connector loads it, or they wait
        for their client's next input. They go on into `running` by themselves, in no plan.
        """

    @property
    def free_blocks(self) -> int:
        """KV blocks that no request holds; blocks of the prefix cache that nobody uses count as free."""

    @property
    def promised_blocks(self) -> int:
        """KV blocks that running requests still need to finish their prefill."""

    @property
    def tokens_per_step(self) -> float:
        """Output tokens that a step gives a request that generates: 1, or more with speculative decoding."""

    def first_token(self, request: RequestView) -> tuple[float, int] | None:
        """Return when its first output came, unix seconds, and how many tokens that was; None before.

        It stays while the request lives, also if it loses its KV.
        """

    @property
    def cost(self) -> CostModel | None:
        """How long this engine's steps take, as learned from them; None until enough were seen.

        The same object until it is renewed, so what is derived from it can be kept by identity.
        """

    @property
    def encoder_token(self) -> float:
        """Seconds that encoders take for each token that they yield; 0 until a step with some was timed.

        They turn pictures and the like into tokens of a prompt, in the step that first computes one of these.
        """

    def encoder_tokens(self, request: RequestView) -> int:
        """Count the tokens that encoders still have to yield for `request`; 0 if all that it has is text."""

    @property
    def token_at_most(self) -> float | None:
        """Seconds that a prompt token takes at most in steps with more of them than any so far.

        For as long as `cost` is None; None itself before the first step with a prompt.
        """

    def targets(self, request: RequestView) -> Targets:
        """Return the targets of `request`: the service's, or its own within what the service allows.

        Constant while the request lives and the policy document stays.
        """

    def predicted_output(self, request: RequestView) -> float:
        """Return how many output tokens `request` is expected to produce in all, without padding.

        At least one more than it has, unless it is at `most_output`, which it never exceeds. Constant unless
        the request outgrew it.
        """

    def predict_ahead(self, request: RequestView) -> float:
        """Return what `predicted_output` will be when `request` has one more token; it stays as it is."""

    def most_output(self, request: RequestView) -> int:
        """Return the most output tokens that `request` may produce."""

    def cached_tokens(self, request: RequestView) -> int:
        """Count the tokens from a waiting request's beginning that need not be computed if it starts now.

        Looked up anew each time, in microseconds, and less than it has; others that come and go change it.
        """

    def shared_blocks(self, request: RequestView) -> int:
        """Count the KV blocks that others hold, too: to start takes, and to end frees, none of them.

        Cached blocks that nobody holds are not among them: to use one takes it from the free ones.
        """
