"""What the simulator leaves out of vLLM's work for a token whose result is known beforehand.

Most of a simulated step is vLLM finding out, request by request, that nothing happens: a block with room
needs no block, a token that is neither the first of a request nor its last ends nothing. These cases are seen
here and cut short; everything else goes through vLLM's own code. What only a worker would read is not made.
Tests run engines with and without and compare every decision.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from threading import RLock
from types import FunctionType
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.request import Request, RequestStatus

from headrace_engine.sim.block_pool import QuickBlockPool

ANY_TOKEN = 7
LOCKS: defaultdict[str, Any] = defaultdict(RLock)
NO_PROFILER = LOCKS.__getitem__  # a lock is entered and left in C, a null context is not
LIMITS = ("max_num_running_reqs", "max_num_active_reqs")  # the second since 0.31
OTHER_QUEUES = ("skipped_waiting", "kv_holding_waiting")  # beside `waiting`; which one depends on the version
RUNNING = RequestStatus.RUNNING  # looking it up in the enumeration takes as long as all else


class TextRequest(Request):  # type: ignore[misc]  # mypy does not follow vLLM
    """A request that is only text, so vLLM need not look; `told` is what each token is told with.

    `quiet`: so many of its next tokens are neither its first nor its last, unless it is preempted. `ending`:
    prompt and output, tokens.
    What is read for every token lies in slots: vLLM's attributes are too many for Python to find them fast.
    """

    __slots__ = (
        "_all_token_ids",
        "_output_token_ids",
        "ending",
        "is_prefill_chunk",
        "max_tokens",
        "mm_features",
        "next_decode_eligible_step",
        "num_computed_tokens",
        "num_in_flight_tokens",
        "num_output_placeholders",
        "num_prompt_tokens",
        "num_stale_output_tokens",
        "prefill_stats",
        "quiet",
        "request_id",
        "spec_token_ids",
        "status",
        "told",
    )
    num_encoder_inputs = 0
    has_encoder_inputs = False
    use_structured_output = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.told = EngineCoreOutput(self.request_id, [ANY_TOKEN])
        self.quiet = 0
        self.ending = self.num_prompt_tokens + self.max_tokens


class Unsettled:
    """The running requests from `settled` on, as vLLM loops over them; true if there are any in all."""

    def __init__(self, running: list[Any], settled: int) -> None:
        self._running = running
        self._settled = settled
        self.append = running.append
        self.pop = running.pop  # only while some are left: the one that finds no room is never settled

    def __bool__(self) -> bool:
        return bool(self._running)

    def __len__(self) -> int:
        return len(self._running) - self._settled

    def __getitem__(self, index: int) -> Any:
        if index < 0:
            return self._running[index]
        place = index + self._settled
        return self._running[place if place < len(self._running) else 0]  # vLLM up to 0.31 asks for any

    def __iter__(self) -> Iterator[Any]:
        return islice(self._running, self._settled, None)


def _schedule_unsettled() -> FunctionType:
    """Derive vLLM's own code, with `_unsettled` for the running requests and no profiler."""
    code = Scheduler.schedule.__code__
    names = tuple("_unsettled" if name == "running" else name for name in code.co_names)
    known = Scheduler.schedule.__globals__ | {"record_function_or_nullcontext": NO_PROFILER}
    return FunctionType(code.replace(co_names=names), known, "schedule", Scheduler.schedule.__defaults__)


class Shortcuts:
    """Mixed in before one of vLLM's schedulers; requests are `TextRequest`s, the KV cache has one group."""

    running: list[Any]
    current_step: int
    max_model_len: int
    max_num_scheduled_tokens: int
    prev_step_scheduled_req_ids: set[str]
    finished_req_ids: set[str]
    reset_preempted_req_ids: set[str]
    _pause_state: PauseState
    _schedule_unsettled = _schedule_unsettled()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        manager = self.kv_cache_manager  # type: ignore[attr-defined]
        (self._table,) = manager.coordinator.single_type_managers
        self._allocate = manager.allocate_slots
        self._no_blocks = manager.empty_kv_cache_blocks
        self._caching = manager.enable_caching
        self._is_async = isinstance(self, AsyncScheduler)
        self._limits = [name for name in LIMITS if hasattr(self, name)]
        self._other_queues = [name for name in OTHER_QUEUES if hasattr(self, name)]
        self._decode_step: Any = None  # vLLM's output of a step in which all decode and nobody comes
        self._pool = manager.block_pool
        self._pool.__class__ = QuickBlockPool
        manager.allocate_slots = self._allocate_slots
        manager.estimate_cached_tokens = self._cached_tokens

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Give one token to those at the front that need just that, then leave all others to vLLM's loop."""
        paused = self._pause_state == PauseState.PAUSED_ALL
        decodes, settled = ([], 0) if paused else self._settle()
        count = len(decodes)
        names = [request.request_id for request in decodes]
        computed = [request.num_computed_tokens for request in decodes]
        alone = not (args or kwargs or paused) and self._nobody_else(settled, count)
        if alone and self._decode_step is not None:
            output = self._only_decodes(names, computed)
        else:
            self._unsettled = Unsettled(self.running, settled)
            self._lower_limits(settled, count)
            output = self._schedule_unsettled(*args, **kwargs)
            self._lower_limits(-settled, -count)
            if alone:
                self._decode_step = copy.copy(output)
            output.scheduled_cached_reqs.req_ids[:0] = names
            output.scheduled_cached_reqs.num_computed_tokens[:0] = computed
            output.num_scheduled_tokens = dict.fromkeys(names, 1) | output.num_scheduled_tokens
            output.total_num_scheduled_tokens += count
            self.prev_step_scheduled_req_ids.update(names)
        new_placeholders = 1 if self._is_async else 0
        for request, before in zip(decodes, computed):  # noqa: B905 of equal length
            request.num_computed_tokens = before + 1
            request.num_in_flight_tokens += 1
            request.num_output_placeholders += new_placeholders
        return output

    def _nobody_else(self, settled: int, tokens: int) -> bool:
        """Tell whether vLLM's loops would find nobody else for this step.

        The queue is asked if vLLM would ask it, since a policy notes that it was.
        """
        return (
            settled == len(self.running)
            and self.max_num_scheduled_tokens > tokens
            and not any(getattr(self, name) for name in self._other_queues)
            and not self.reset_preempted_req_ids
            and not self.waiting  # type: ignore[attr-defined]
        )

    def _only_decodes(self, names: list[str], computed: list[int]) -> Any:
        """Make a step of one token for each of `names`, and note what vLLM would note of it."""
        output = object.__new__(SchedulerOutput)
        output.__dict__.update(self._decode_step.__dict__)
        output.scheduled_cached_reqs = self._cached(names, computed)
        output.num_scheduled_tokens = dict.fromkeys(names, 1)
        output.total_num_scheduled_tokens = len(names)
        output.finished_req_ids = self.finished_req_ids
        self.finished_req_ids = set()
        self.current_step += 1
        self.prev_step_scheduled_req_ids.clear()
        self.prev_step_scheduled_req_ids.update(names)
        return output

    def _lower_limits(self, requests: int, tokens: int) -> None:
        for name in self._limits:
            setattr(self, name, getattr(self, name) - requests)
        self.max_num_scheduled_tokens -= tokens

    def _settle(self) -> tuple[list[Any], int]:
        """Give one token to who decodes and has room, up to the first who needs a closer look.

        And how many were looked at: some vLLM leaves out of a step, since their last token is on its way or
        they are skipped.
        """
        decodes: list[Any] = []
        settled = 0
        caching, size = self._caching, self._table.block_size
        step, longest = self.current_step + 1, self.max_model_len - 1
        budget = self.max_num_scheduled_tokens
        for request in self.running:
            placeholders, computed = request.num_output_placeholders, request.num_computed_tokens
            if not (placeholders and computed + 2 - placeholders >= request.ending) and (
                step >= request.next_decode_eligible_step
            ):
                if request.is_prefill_chunk or computed >= longest or budget <= len(decodes):
                    break
                known = len(request._all_token_ids)  # noqa: SLF001
                if known + placeholders - computed != 1:
                    break
                at_edge = not computed % size or (caching and not known % size)
                if at_edge and self._allocate_slots(request, 1) is None:
                    break
                decodes.append(request)
            settled += 1
        return decodes, settled

    def _allocate_slots(self, request: Any, num_new_tokens: int, **details: Any) -> Any:
        """Allocate for a running request's token no block if its last one has room, else the next free one.

        And cache the block that the tokens known so far have filled. vLLM does it where none is free.
        """
        computed = request.num_computed_tokens
        if num_new_tokens != 1 or request.status is not RUNNING or computed >= self.max_model_len:
            return self._allocate(request, num_new_tokens, **details)
        if not computed % self._table.block_size:
            if not self._pool.get_num_free_blocks():
                return self._allocate(request, num_new_tokens, **details)
            blocks = self._table.req_to_blocks[request.request_id]
            if computed == len(blocks) * self._table.block_size:
                blocks += self._pool.get_new_blocks(1)
        if self._caching:
            self._cache_blocks(request, min(computed + 1, len(request._all_token_ids)))  # noqa: SLF001
        return self._no_blocks

    def _cache_blocks(self, request: Any, tokens: int) -> None:
        """Enter the blocks that these tokens fill into the prefix cache, as far as it does not have them."""
        table, name = self._table, request.request_id
        full, cached = tokens // table.block_size, table.num_cached_block.get(name, 0)
        if full > cached:
            self._pool.cache_full_blocks(request, table.req_to_blocks[name], cached, full, table.block_size)
            table.num_cached_block[name] = full

    def _cached_tokens(self, request: Any) -> int:
        """Count the tokens of a request that the prefix cache has."""
        cached: int = self._table.num_cached_block.get(request.request_id, 0)
        return cached * self._table.block_size if self._caching else 0

    def _reserve_prefill_lookahead(self, request: Any, num_computed_tokens: int, num_new_tokens: int) -> int:  # noqa: ARG002
        """Reserve nothing: there is no drafter."""
        return num_new_tokens if num_new_tokens > 0 else 0

    def _make_cached_request_data(
        self, running: Sequence[Any], resumed: Sequence[Any], *_: Any
    ) -> CachedRequestData:
        """Tell who runs and from where; block numbers and tokens are for workers."""
        requests = running if not resumed else list(chain(running, resumed))
        return self._cached(
            [request.request_id for request in requests],
            [request.num_computed_tokens for request in requests],
        )

    @staticmethod
    def _cached(names: list[str], computed: list[int]) -> CachedRequestData:
        return CachedRequestData(
            req_ids=names,
            resumed_req_ids=set(),
            new_token_ids=[],
            all_token_ids={},
            new_block_ids=[],
            num_computed_tokens=computed,
            num_output_tokens=[],
        )

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        """Keep what vLLM keeps of each request, without what only structured output or connectors need."""
        requests, prefills = self.requests, self._inflight_prefills  # type: ignore[attr-defined]
        new_placeholders = 1 if self._is_async else 0
        for name, tokens in scheduler_output.num_scheduled_tokens.items():
            request = requests[name]
            computed = request.num_computed_tokens = request.num_computed_tokens + tokens
            request.num_in_flight_tokens += tokens
            known = len(request._all_token_ids) + request.num_output_placeholders  # noqa: SLF001
            if computed < known:
                request.is_prefill_chunk = True
                continue
            request.is_prefill_chunk = False
            request.num_output_placeholders += new_placeholders
            if prefills:
                prefills.discard(request)
        self.finished_req_ids = set()
        self.reset_preempted_req_ids = set()

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Take in tokens in the middle of a running request's output here, all others by vLLM."""
        requests = self.requests  # type: ignore[attr-defined]
        caching, size, placeholders = self._caching, self._table.block_size, 1 if self._is_async else 0
        first = 1 % size  # tokens in a block that has just been begun
        told: list[EngineCoreOutput] = []
        others, places = dict[str, int](), dict[str, int]()  # tokens; how many are told before
        samples = model_runner_output.sampled_token_ids
        for (name, tokens), sampled in zip(  # noqa: B905 of equal length
            scheduler_output.num_scheduled_tokens.items(), samples
        ):
            request = requests.get(name)
            if request is None or not request.quiet or not sampled:
                others[name], places[name] = tokens, len(told)
                continue
            request.quiet -= 1
            request.num_in_flight_tokens -= tokens
            request.num_output_placeholders -= placeholders
            request._output_token_ids.append(ANY_TOKEN)  # noqa: SLF001
            known = request._all_token_ids  # noqa: SLF001
            known.append(ANY_TOKEN)
            if caching:
                over = len(known) % size
                if not over:
                    request.update_block_hashes()
                if over == first and placeholders:  # all tokens but this one are computed
                    self._cache_blocks(request, len(known) - 1)
            told.append(request.told)
        if not others:
            return {0: EngineCoreOutputs(outputs=told)}
        rest = copy.copy(scheduler_output)
        rest.num_scheduled_tokens = others
        results = super().update_from_output(rest, model_runner_output)  # type: ignore[misc]
        if told:  # in the order in which the requests were scheduled, as all would be
            outputs = results.setdefault(0, EngineCoreOutputs(outputs=[])).outputs
            for output in reversed(outputs):
                told.insert(places.get(output.request_id, len(told)), output)
            outputs[:] = told
        for name in others:
            request = requests.get(name)
            if (
                request is not None
                and request.status is RUNNING
                and request.prefill_stats is None  # its first token took them
                and not request.num_stale_output_tokens
            ):
                request.quiet = request.max_tokens - 1 - len(request._output_token_ids)  # noqa: SLF001
        return results

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        request.quiet = 0
        super()._preempt_request(request, *args, **kwargs)  # type: ignore[misc]


class QuickScheduler(Shortcuts, Scheduler):  # type: ignore[misc]
    """vLLM's scheduler with shortcuts."""


class QuickAsyncScheduler(Shortcuts, AsyncScheduler):  # type: ignore[misc]
    """vLLM's asynchronous scheduler with shortcuts."""
