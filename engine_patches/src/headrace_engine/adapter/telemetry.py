"""What the engine tells its sidecar: the board after each step, step samples, finished requests.

TTFT, JCT and queue time count from the request's arrival at the API server. TBT is the time between two
deliveries of tokens of one request; its target is met if the mean over the request is within it, and the
single gaps beyond it are counted besides.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from headrace_engine.adapter.guard import Guard
from headrace_engine.adapter.link import Link
from headrace_engine.adapter.queue import PlanQueue
from headrace_engine.adapter.view import SchedulerView
from headrace_engine.contracts import PolicyDocument, Slo
from headrace_engine.control.records import BoardRecord, FinishedRequest, StepSample, Target

STEPS_IN_FLIGHT = 16  # at most; vLLM plans one or, with pipeline stages, a few steps ahead


@dataclass(slots=True)
class Progress:
    """One request on its way; times are the clock's, `first_token` 0 if it has none yet."""

    request: Any
    scheduled: float | None = None
    first_token: float = 0.0
    last_token: float = 0.0
    max_tbt: float = 0.0
    tbt_violations: int = 0


class Telemetry:
    """Counts and times of one engine; reads the scheduler, never changes it."""

    def __init__(
        self, scheduler: Any, view: SchedulerView, queue: PlanQueue, guard: Guard, link: Link
    ) -> None:
        self._scheduler = scheduler
        self._view = view
        self._queue = queue
        self._guard = guard
        self._link = link
        self._slo = Slo()
        self._tbt_target = float("inf")  # seconds
        self._applied_hash = 0
        self._progress: dict[str, Progress] = {}
        self._in_flight: deque[tuple[Any, float]] = deque(maxlen=STEPS_IN_FLIGHT)  # output, start
        self._delivered = 0.0  # when the last step's output came
        self._arrivals = self._arrived_tokens = self._finishes = self._preemptions = 0
        link.publish(self._board())

    def installed(self, document: PolicyDocument) -> None:
        """`document` is in force from this step on."""
        self._slo = document.slo
        self._tbt_target = document.slo.tbt_ms / 1000 if document.slo.tbt_ms else float("inf")
        self._applied_hash = int(document.hash, 16)

    def arrived(self, request: Any) -> None:
        """A request was handed to the scheduler, which keeps only the first part of a streamed input."""
        if self._scheduler.requests.get(request.request_id) is request:
            self._progress[request.request_id] = Progress(request)
            self._arrivals += 1
            self._arrived_tokens += request.num_prompt_tokens

    def left(self, request: Any) -> None:
        """A request is finished or aborted, and about to be freed.

        A `stop` string is found by vLLM's front end, which then aborts the request here. So an abort after
        the first token of a request with such strings is told as a finish, though its client may have left.
        """
        self._finishes += 1
        reason = request.get_finished_reason().name
        if reason in ("ABORT", "ERROR"):
            progress = self._progress.pop(request.request_id, None)
            stop = request.sampling_params is not None and request.sampling_params.stop
            if reason == "ABORT" and stop and progress is not None and progress.first_token:
                self._link.finished(finished_request(progress, progress.last_token, self._slo))

    def scheduled(self, output: Any) -> None:
        """A step has been planned: its `SchedulerOutput`."""
        now = self._view.now
        for new in output.scheduled_new_reqs:
            progress = self._progress.get(new.req_id)
            if progress is not None and progress.scheduled is None:
                progress.scheduled = now
        if output.preempted_req_ids:
            self._preemptions += len(output.preempted_req_ids)
        if output.total_num_scheduled_tokens:
            self._in_flight.append((output, now))
        self._link.publish(self._board())

    def delivered(self, output: Any, results: dict[int, Any]) -> None:
        """A step's tokens are there: its `SchedulerOutput` and the `EngineCoreOutputs` by client."""
        now = self._link.clock()
        self._sample(output, now)
        progress_of, target = self._progress, self._tbt_target
        for result in results.values():
            for item in result.outputs:
                progress = progress_of.get(item.request_id)
                if progress is None:
                    continue
                if item.new_token_ids:
                    if progress.first_token:
                        gap = now - progress.last_token
                        progress.max_tbt = max(progress.max_tbt, gap)
                        if gap > target:
                            progress.tbt_violations += 1
                    else:
                        progress.first_token = now
                    progress.last_token = now
                if item.finish_reason is not None and progress.request.is_finished():
                    del progress_of[item.request_id]
                    self._link.finished(finished_request(progress, now, self._slo))

    def _sample(self, output: Any, now: float) -> None:
        while self._in_flight:
            planned, started = self._in_flight.popleft()
            if planned is output:
                seconds = now - max(started, self._delivered)  # steps overlap when vLLM plans ahead
                self._link.step(step_sample(output, max(seconds, 0.0)))
                break
        self._delivered = now

    def _board(self) -> BoardRecord:
        scheduler, limits, guard = self._scheduler, self._view.limits, self._guard
        running, waiting = scheduler.get_request_counts()
        unfinished = scheduler._inflight_prefills
        return BoardRecord(
            self._view.now or self._link.clock(),
            scheduler.current_step,
            running,
            waiting,
            self._queue.tokens,
            sum(r.num_tokens - r.num_computed_tokens for r in unfinished) if unfinished else 0,
            self._queue.blocks,
            self._view.free_blocks,
            limits.total_blocks,
            limits.block_size,
            self._arrivals,
            self._arrived_tokens,
            self._finishes,
            self._preemptions,
            guard.fallback_steps,
            guard.error,
            self._applied_hash,
            guard.disabled,
            limits.max_step_tokens,
        )


def step_sample(output: Any, seconds: float) -> StepSample:
    """What a step computed and how long it took."""
    return StepSample(*step_features(output)[:4], seconds)


def step_features(output: Any) -> tuple[int, int, int, int, int]:
    """Prefill tokens and work, decodes and their context, prefill chunks of a `SchedulerOutput`.

    A token's context is all that precedes it. One token is a decode, also if it is the last of a prompt.
    """
    tokens, drafted = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
    cached = output.scheduled_cached_reqs
    prefill_tokens = prefill_work = prefills = 0
    decodes, decode_context = len(cached.req_ids), sum(cached.num_computed_tokens)
    if output.total_num_scheduled_tokens == decodes:  # one token each, and nobody new
        return 0, 0, decodes, decode_context, 0
    chunks = [(new.req_id, new.num_computed_tokens) for new in output.scheduled_new_reqs]
    decodes += len(chunks)
    decode_context += sum(context for _, context in chunks)
    chunks += zip(cached.req_ids, cached.num_computed_tokens)  # noqa: B905 of equal length
    for request_id, context in chunks:
        chunk = tokens[request_id]
        if chunk != 1 and request_id not in drafted:
            prefill_tokens += chunk
            prefill_work += chunk * context + chunk * (chunk + 1) // 2
            prefills += 1
            decodes -= 1
            decode_context -= context
    return prefill_tokens, prefill_work, decodes, decode_context, prefills


def finished_request(progress: Progress, now: float, slo: Slo) -> FinishedRequest:
    """The record of a request that finished at `now`, judged by the targets in force at that time."""
    request = progress.request
    first = progress.first_token or now
    ttft = first - request.arrival_time
    jct = now - request.arrival_time
    gaps = request.num_output_tokens - 1
    mean_tbt = (progress.last_token - first) / gaps if gaps > 0 else 0.0
    targets = met = Target(0)
    for target, limit_ms, value in (
        (Target.TTFT, slo.ttft_ms, ttft),
        (Target.TBT, slo.tbt_ms, mean_tbt),
        (Target.JCT, slo.jct_ms, jct),
    ):
        if limit_ms is not None:
            targets |= target
            if value * 1000 <= limit_ms:
                met |= target
    return FinishedRequest(
        time=now,
        prompt_tokens=request.num_prompt_tokens,
        output_tokens=request.num_output_tokens,
        ttft=max(ttft, 0.0),
        max_tbt=progress.max_tbt,
        mean_tbt=mean_tbt,
        tbt_violations=progress.tbt_violations,
        jct=max(jct, 0.0),
        queue_time=max(
            (now if progress.scheduled is None else progress.scheduled) - request.arrival_time, 0.0
        ),
        targets=int(targets),
        met=int(met),
        preemptions=request.num_preemptions,
    )
