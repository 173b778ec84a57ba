"""What the engine tells its sidecar: the board after each step, step samples, finished requests.

TTFT, JCT and queue time count from the request's arrival at the API server. TBT is the time between two
deliveries of tokens of one request; its target is met if the mean over the request is within it, and the
single gaps beyond it are counted besides. Targets are the request's own, see `targets`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace_engine.adapter.forecast import Forecast, Foreseen, ran_to_its_end
from headrace_engine.adapter.guard import Guard
from headrace_engine.adapter.link import Link
from headrace_engine.adapter.queue import PlanQueue
from headrace_engine.adapter.targets import KINDS, set_of
from headrace_engine.adapter.view import SchedulerView
from headrace_engine.contracts import PolicyDocument
from headrace_engine.control.records import BoardRecord, FinishedRequest, StepSample, Target


@dataclass(slots=True)
class Progress:
    """One request on its way; times are the clock's, `first_token` 0 if it has none yet."""

    request: Any
    foreseen: Foreseen
    scheduled: float | None = None
    first_token: float = 0.0
    last_token: float = 0.0
    max_tbt: float = 0.0
    tbt_violations: int = 0


class Telemetry:
    """Counts and times of one engine; reads the scheduler, never changes it."""

    def __init__(  # noqa: PLR0917 one per neighbour
        self,
        scheduler: Any,
        view: SchedulerView,
        queue: PlanQueue,
        guard: Guard,
        forecast: Forecast,
        link: Link,
    ) -> None:
        self._scheduler = scheduler
        self._view = view
        self._queue = queue
        self._guard = guard
        self._forecast = forecast
        self._link = link
        self._applied_hash = 0
        self._progress: dict[str, Progress] = {}
        self._arrivals = self._arrived_tokens = self._finishes = self._preemptions = 0
        link.publish(self._board())

    def installed(self, document: PolicyDocument) -> None:
        """`document` is in force from this step on."""
        self._applied_hash = int(document.hash, 16)

    def arrived(self, request: Any) -> None:
        """A request was handed to the scheduler."""
        self._progress[request.request_id] = Progress(request, self._forecast.of(request))
        self._arrivals += 1
        self._arrived_tokens += request.num_prompt_tokens

    def left(self, request: Any) -> None:
        """A request is finished or aborted, and about to be freed."""
        self._finishes += 1
        if request.get_finished_reason().name in ("ABORT", "ERROR"):
            progress = self._progress.pop(request.request_id, None)
            if progress is not None and progress.first_token and ran_to_its_end(request):
                self._finished(progress, progress.last_token)

    def scheduled(self, output: Any) -> None:
        """A step has been planned: its `SchedulerOutput`."""
        now = self._view.now
        for new in output.scheduled_new_reqs:
            progress = self._progress.get(new.req_id)
            if progress is not None and progress.scheduled is None:
                progress.scheduled = now
        if output.preempted_req_ids:
            self._preemptions += len(output.preempted_req_ids)
        self._link.publish(self._board())

    def delivered(self, sample: StepSample | None, results: dict[int, Any], now: float) -> None:
        """A step's tokens are there: what is known of the step, and the `EngineCoreOutputs` by client."""
        if sample is not None:
            self._link.step(sample)
        progress_of = self._progress
        for result in results.values():
            for item in result.outputs:
                progress = progress_of.get(item.request_id)
                if progress is None:
                    continue
                if item.new_token_ids:
                    if progress.first_token:
                        gap = now - progress.last_token
                        if gap > progress.max_tbt:  # noqa: PLR1730 max() takes longer, for each token
                            progress.max_tbt = gap
                        target = progress.foreseen.targets.tbt
                        if target is not None and gap > target:
                            progress.tbt_violations += 1
                    else:
                        progress.first_token = now
                    progress.last_token = now
                if item.finish_reason is not None and progress.request.is_finished():
                    del progress_of[item.request_id]
                    self._finished(progress, now)

    def _finished(self, progress: Progress, now: float) -> None:
        self._link.finished(finished_request(progress, now, self._forecast))

    def _board(self) -> BoardRecord:
        scheduler, limits, guard, forecast = self._scheduler, self._view.limits, self._guard, self._forecast
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
            self._tokens_per_block(),
            self._arrivals,
            self._arrived_tokens,
            self._finishes,
            self._preemptions,
            guard.fallback_steps,
            guard.error,
            self._applied_hash,
            guard.disabled,
            limits.max_step_tokens,
            forecast.predictor_code,
            forecast.failures,
            forecast.learned,
            forecast.ignored_wishes,
            guard.step_tokens,
            guard.hidden,
            *guard.gauges(),
        )

    def _tokens_per_block(self) -> int:
        """Of a prompt of mean length; the same for all where every layer keeps all tokens."""
        limits = self._view.limits
        if not limits.other_groups:
            return max(limits.block_size // max(limits.kv_groups, 1), 1)
        mean = max(self._arrived_tokens // max(self._arrivals, 1), 1)
        return max(mean // limits.blocks(mean), 1)


def finished_request(progress: Progress, now: float, forecast: Forecast) -> FinishedRequest:
    """The record of a request that finished at `now`, judged by its targets."""
    request, foreseen = progress.request, progress.foreseen
    first = progress.first_token or now
    ttft = first - request.arrival_time
    jct = now - request.arrival_time
    gaps = request.num_output_tokens - 1
    mean_tbt = max((progress.last_token - first) / gaps, 0.0) if gaps > 0 else 0.0  # clocks may step back
    targets, impossible = forecast.judged(foreseen, request.num_output_tokens)
    met = Target(0)
    for kind, value in zip(KINDS, (ttft, mean_tbt, jct), strict=True):
        target = getattr(targets, kind)
        if target is not None and value <= target:
            met |= Target[kind.upper()]
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
        targets=int(set_of(targets)),
        met=int(met),
        preemptions=request.num_preemptions,
        asked=int(set_of(foreseen.wishes.targets)),
        impossible=int(impossible),
        predicted_tokens=foreseen.first,
    )
