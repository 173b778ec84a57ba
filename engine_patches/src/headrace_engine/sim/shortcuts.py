"""What the simulator leaves out of vLLM's work for a token whose result is known beforehand.

Most of a simulated step is vLLM finding out, request by request, that nothing happens: a block with room
needs no block, a token that is neither the first of a request nor its last ends nothing. These cases are seen
here and cut short; everything else goes through vLLM's own code. What only a worker would read is not made.
Tests run engines with and without and compare every decision.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain
from types import FunctionType
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import CachedRequestData
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.request import Request, RequestStatus

ANY_TOKEN = 7
NO_PROFILER = nullcontext()
RUNNING = RequestStatus.RUNNING  # looking it up in the enumeration takes as long as all else


class TextRequest(Request):  # type: ignore[misc]  # mypy does not follow vLLM
    """A request that is only text, so vLLM need not look; `told` is what each token is told with."""

    num_encoder_inputs = 0
    has_encoder_inputs = False
    use_structured_output = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.told = EngineCoreOutput(self.request_id, [ANY_TOKEN])


class Shortcuts:
    """Mixed in before one of vLLM's schedulers; requests are `TextRequest`s, the KV cache has one group."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        manager = self.kv_cache_manager  # type: ignore[attr-defined]
        (self._table,) = manager.coordinator.single_type_managers
        self._allocate = manager.allocate_slots
        self._no_blocks = manager.empty_kv_cache_blocks
        self._caching = manager.enable_caching
        self._is_async = isinstance(self, AsyncScheduler)
        manager.allocate_slots = self._allocate_slots

    schedule = FunctionType(  # vLLM's own, with no profiler to tell where it is
        Scheduler.schedule.__code__,
        Scheduler.schedule.__globals__ | {"record_function_or_nullcontext": lambda _: NO_PROFILER},
        "schedule",
        Scheduler.schedule.__defaults__,
    )

    def _allocate_slots(self, request: Any, num_new_tokens: int, **details: Any) -> Any:
        """No block for one token of a running request if its last one has room and none is to be cached."""
        computed, size = request.num_computed_tokens, self._table.block_size
        if num_new_tokens == 1 and computed % size and request.status is RUNNING:
            if not self._caching:
                return self._no_blocks
            full = min(computed + 1, len(request._all_token_ids)) // size  # noqa: SLF001
            if full <= self._table.num_cached_block.get(request.request_id, 0):
                return self._no_blocks
        return self._allocate(request, num_new_tokens, **details)

    def _reserve_prefill_lookahead(self, request: Any, num_computed_tokens: int, num_new_tokens: int) -> int:  # noqa: ARG002
        """There is no drafter to reserve for."""
        return num_new_tokens if num_new_tokens > 0 else 0

    def _make_cached_request_data(
        self, running: Sequence[Any], resumed: Sequence[Any], *_: Any
    ) -> CachedRequestData:
        """Who runs and from where; block numbers and tokens are for workers."""
        requests = running if not resumed else list(chain(running, resumed))
        return CachedRequestData(
            req_ids=[request.request_id for request in requests],
            resumed_req_ids=set(),
            new_token_ids=[],
            all_token_ids={},
            new_block_ids=[],
            num_computed_tokens=[request.num_computed_tokens for request in requests],
            num_output_tokens=[],
        )

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        """What vLLM keeps of each request, without what only structured output or connectors need."""
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
        self.finished_req_ids = set()  # type: ignore[var-annotated]
        self.reset_preempted_req_ids = set()  # type: ignore[var-annotated]

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Tokens in the middle of a running request's output here, all others by vLLM."""
        requests, caching, is_async = self.requests, self._caching, self._is_async  # type: ignore[attr-defined]
        told, others = [], {}
        samples = model_runner_output.sampled_token_ids
        for (name, tokens), sampled in zip(  # noqa: B905 of equal length
            scheduler_output.num_scheduled_tokens.items(), samples
        ):
            request = requests.get(name)
            if (
                request is None
                or not sampled
                or request.prefill_stats is not None  # the first token takes them
                or request.status is not RUNNING
                or request.num_stale_output_tokens
                or len(request._output_token_ids) >= request.max_tokens - 1  # noqa: SLF001
            ):
                others[name] = tokens
                continue
            request.num_in_flight_tokens -= tokens
            request._output_token_ids.append(ANY_TOKEN)  # noqa: SLF001
            request._all_token_ids.append(ANY_TOKEN)  # noqa: SLF001
            if caching:
                request.update_block_hashes()
            if is_async:
                request.num_output_placeholders -= 1
                if caching:
                    self.kv_cache_manager.cache_blocks(  # type: ignore[attr-defined]
                        request, request.num_computed_tokens - request.num_output_placeholders
                    )
            told.append(request.told)
        if not others:
            return {0: EngineCoreOutputs(outputs=told)}
        rest = copy.copy(scheduler_output)
        rest.num_scheduled_tokens = others
        results = super().update_from_output(rest, model_runner_output)  # type: ignore[misc]
        if told:
            results.setdefault(0, EngineCoreOutputs(outputs=[])).outputs.extend(told)
        return results


class QuickScheduler(Shortcuts, Scheduler):  # type: ignore[misc]
    """vLLM's scheduler with shortcuts."""


class QuickAsyncScheduler(Shortcuts, AsyncScheduler):  # type: ignore[misc]
    """vLLM's asynchronous scheduler with shortcuts."""
