"""One step: ask the policy, let vLLM see only what was planned, and undo it afterwards."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import cast

from vllm.v1.core.sched.interface import PauseState

from headrace_engine.adapter.plan_queue import PlanQueue
from headrace_engine.adapter.policy_guard import PolicyGuard
from headrace_engine.adapter.scheduler_view import SchedulerView
from headrace_engine.adapter.vllm_types import VllmRequest, VllmScheduler
from headrace_engine.policies.plan import NO_LIMITS, RunningLimits


class StepPlanner:
    """Applies plans to one vLLM scheduler, through the parts of vLLM that `compat` checks."""

    def __init__(
        self, scheduler: VllmScheduler, view: SchedulerView, queue: PlanQueue, guard: PolicyGuard
    ) -> None:
        self._scheduler = scheduler
        self._view = view
        self._queue = queue
        self._guard = guard
        self._own: list[VllmRequest] | None = (
            None  # the running requests in vLLM's order, if the step has another
        )
        self._caps = False  # whether the step has caps on chunks
        self.is_planned = True  # whether the step has a plan, or should have had; if not, there is no `end`

    def begin(self, now: float) -> None:
        """Plan the step that vLLM is about to schedule, if there is anything to decide."""
        self._queue.tell()
        self.is_planned = not self._guard.decides_nothing
        if not self.is_planned:
            self._view.now = now
            return
        self._view.begin(now)
        plan = self._guard.plan_step()
        self._queue.begin(self._guard.admitted())
        try:
            self._scheduler.max_num_scheduled_tokens = plan.step_tokens
            if plan.running_limits is not NO_LIMITS:
                self._apply_limits(plan.running_limits)
        except Exception:
            self._queue.show_all()
            self._restore()
            raise

    def end(self, scheduled_tokens: int) -> None:
        """Leave vLLM's scheduler as it would be without us, and close the step's books."""
        self._restore()
        self._queue.show_all()
        self._guard.finish_step(scheduled_tokens)

    def prepare_next(self) -> None:
        """Do what the next step would wait for, while the device computes the one planned last."""
        self._queue.tell()
        self._guard.prepare_next()

    def _restore(self) -> None:
        """Take back what holds for one step. vLLM's order of `running` is that of starting."""
        scheduler, own = self._scheduler, self._own
        scheduler.max_num_scheduled_tokens = self._view.limits.max_step_tokens
        if self._caps:
            self._caps = False
            scheduler.__dict__.pop("_reserve_prefill_lookahead", None)
        self._own = None
        if own is not None:
            running, before = set(scheduler.running), set(own)
            started = [request for request in scheduler.running if request not in before]
            scheduler.running = [request for request in own if request in running] + started

    def _apply_limits(self, running_limits: RunningLimits) -> None:
        scheduler = self._scheduler
        if running_limits.running is not None:
            self._own = scheduler.running
            scheduler.running = list(cast("Sequence[VllmRequest]", running_limits.running))
        preempted = running_limits.preempted if scheduler._pause_state == PauseState.UNPAUSED else ()
        for request in cast("Collection[VllmRequest]", preempted):
            self._preempt(request)  # in a pause nobody could start in its place
        for request in cast("Collection[VllmRequest]", running_limits.skipped):
            if scheduler.lora_config is not None and request.lora_request is not None:
                continue  # vLLM would give its adapter's place away in this step, and stop at the next
            # schedule() first counts the step up, then skips requests whose eligible step is not reached.
            eligible = scheduler.current_step + 2
            request.next_decode_eligible_step = max(request.next_decode_eligible_step, eligible)
        if running_limits.chunk_caps:
            self._cap_chunks(running_limits)

    def _preempt(self, request: VllmRequest) -> None:
        scheduler = self._scheduler
        if not scheduler._request_blocks_can_be_freed(request):
            return  # a step in flight still writes them; vLLM would not choose it as a victim either
        scheduler._preempt_request(
            request, time.monotonic(), drop_stale_output=scheduler.requires_kv_delivery
        )
        scheduler.running.remove(request)  # last: if the other raises, the request still runs
        scheduler.prev_step_scheduled_req_ids.discard(request.request_id)

    def _cap_chunks(self, running_limits: RunningLimits) -> None:
        """Shadow vLLM's last say over a chunk's size for this step.

        A cap that vLLM rounds down to nothing is dropped, since a chunk of 0 would end the scan of the queue;
        so is one below a decode with its drafts, which can't be split, and any if chunks are bound to blocks
        or to the ends of pictures.
        """
        scheduler = self._scheduler
        if scheduler.need_mamba_block_aligned_split or scheduler.scheduler_config.disable_chunked_mm_input:
            return
        vllm_says = scheduler._reserve_prefill_lookahead
        least = 1 + scheduler.num_spec_tokens
        caps = {request: max(least, cap) for request, cap in running_limits.chunk_caps.items()}

        def capped(request: VllmRequest, num_computed_tokens: int, num_new_tokens: int) -> int:
            cap = min(caps.get(request, num_new_tokens), num_new_tokens)
            tokens = vllm_says(request, num_computed_tokens, cap)
            return tokens or vllm_says(request, num_computed_tokens, num_new_tokens)

        self._caps = True
        scheduler._reserve_prefill_lookahead = capped  # type: ignore[method-assign]
