"""What the engine tells its sidecar: the board, step samples, finished requests.

The board is written as steps are planned, at most every `BOARD_SECONDS`, or `CALM_BOARD_SECONDS` while nobody
comes, starts or leaves. All step samples since the last board go out with it. What can wait is looked at
while the device computes the next step, see `catch_up`.

TTFT, E2E and queue time count from the request's arrival at the API server. ITL is the time between two
deliveries of tokens of one request, TPOT its mean. The TPOT target is met if that mean is within it; single
gaps beyond it are counted besides. Targets are the request's own, see `targets`. Of a request that was under
way elsewhere, all is as if it had been here, its move a gap between two tokens like others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from headrace_engine.adapter.control_link import ControlLink
from headrace_engine.adapter.plan_queue import PlanQueue
from headrace_engine.adapter.policy_guard import PolicyGuard
from headrace_engine.adapter.request_tracker import (
    RequestTracker,
    TrackedRequest,
    name_finish,
    ran_to_its_end,
)
from headrace_engine.adapter.resumption import resumption_with_tokens
from headrace_engine.adapter.scheduler_view import SchedulerView
from headrace_engine.adapter.step_timer import StepTimer
from headrace_engine.adapter.targets import flag_targets
from headrace_engine.adapter.token_gaps import TokenGaps, TokenTimes
from headrace_engine.adapter.turn_taking import TurnCounts
from headrace_engine.adapter.vllm_types import (
    EngineCoreOutput,
    EngineCoreOutputs,
    SchedulerOutput,
    VllmRequest,
    VllmScheduler,
)
from headrace_engine.contracts import PolicyDocument
from headrace_engine.control.records import BoardRecord, FinishedRequest
from headrace_engine.policies.engine_view import Targets

BOARD_SECONDS = 0.01  # between two boards, at least
CALM_BOARD_SECONDS = 0.05  # likewise, while all just go on generating; a sidecar looks no more often
NEW_TOKENS = attrgetter("new_token_ids")


@dataclass(slots=True)
class Progress:
    """One request on its way; times are the clock's."""

    request: VllmRequest
    tracked: TrackedRequest
    scheduled: float | None = None
    tokens: TokenTimes = field(default_factory=TokenTimes)


class Delivery(NamedTuple):
    """A step whose tokens are there."""

    output: SchedulerOutput
    results: dict[int, EngineCoreOutputs]  # by client
    now: float
    left: bool  # whether anyone left the engine in it
    ended: Sequence[str]  # who ran to its end


class Telemetry:
    """Counts and times of one engine; reads the scheduler, never changes it."""

    def __init__(  # noqa: PLR0917 one per neighbour
        self,
        scheduler: VllmScheduler,
        view: SchedulerView,
        queue: PlanQueue,
        guard: PolicyGuard,
        tracker: RequestTracker,
        step_timer: StepTimer,
        turn_counts: TurnCounts,
        link: ControlLink,
    ) -> None:
        self._scheduler = scheduler
        self._view = view
        self._queue = queue
        self._guard = guard
        self._tracker = tracker
        self._step_timer = step_timer
        self._turn_counts = turn_counts
        self._link = link
        self._applied_hash = 0
        self._progress: dict[str, Progress] = {}
        self._gaps = TokenGaps()
        self._ended: list[str] = []  # who ran to its end in the step that is being taken in
        self._left = False  # whether anyone left the engine in it
        self._delivery: Delivery | None = None  # the last one, if it is still to be looked at
        self.at_rest = True  # whether the board says that nothing is computed, or is out of date
        self._published = 0.0  # when the board was
        self._changed = False  # whether anyone came, started or left since
        self._is_due = False  # whether the board is to be written
        self._finished: list[tuple[Progress, float]] = []  # still to be published, and when each did
        self._arrivals = self._arrived_tokens = self._finishes = self._preemptions = 0
        link.publish_board(self._board())

    def record_document(self, document: PolicyDocument) -> None:
        """Take `document` for what is in force from this step on."""
        self._applied_hash = int(document.hash, 16)
        self.at_rest = True
        for name, progress in self._progress.items():
            self._gaps.change_target(name, progress.tracked.targets.tpot)

    def record_arrival(self, request: VllmRequest) -> None:
        """Count a request that was handed to the scheduler."""
        if request.request_id in self._progress:  # of one that ended, in the step not yet looked at
            self._take_in()
        progress = Progress(request, self._tracker.find_request(request))
        self._progress[request.request_id] = progress
        resumption = resumption_with_tokens(request)
        if resumption is not None:
            progress.scheduled = resumption.first_token  # at the latest
            progress.tokens.first, progress.tokens.last = resumption.first_token, resumption.last_token
        self._changed = True
        self._arrivals += 1
        self._arrived_tokens += request.num_tokens

    def record_departure(self, request: VllmRequest) -> None:
        """Count a request that is finished or aborted, and about to be freed."""
        self._finishes += 1
        self._left = self._changed = True
        if name_finish(request) in ("ABORT", "ERROR"):
            self._take_in()
            progress = self._progress.pop(request.request_id, None)
            self._gaps.settle(request.request_id)
            if progress is not None and progress.tokens.first and ran_to_its_end(request):
                self._publish_finished(progress, progress.tokens.last)
        else:
            self._ended.append(request.request_id)

    def record_schedule(self, output: SchedulerOutput) -> None:
        """Count a step that has been planned: its `SchedulerOutput`."""
        now = self._view.now
        for new in output.scheduled_new_reqs:
            progress = self._progress.get(new.req_id)
            if progress is not None and progress.scheduled is None:
                progress.scheduled = now
        if output.preempted_req_ids:
            self._preemptions += len(output.preempted_req_ids)
            self._changed = True
        if output.total_num_scheduled_tokens != len(output.scheduled_cached_reqs.req_ids):
            self._changed = True  # not all of the step are decodes: someone starts, or is amid a prefill
        # After an empty step nobody knows when the next one comes; the board of that one shows that it came.
        is_empty, was_at_rest = not output.total_num_scheduled_tokens, self.at_rest
        age = abs(now - self._published)
        if is_empty or was_at_rest or age >= (BOARD_SECONDS if self._changed else CALM_BOARD_SECONDS):
            self._published, self.at_rest = now, is_empty
            self._changed = False
            self._is_due = True
        if is_empty or was_at_rest:
            self.catch_up()

    def catch_up(self) -> None:
        """Look at the last step's tokens, and publish: the board if it is due, samples, who finished."""
        self._take_in()
        if self._is_due:
            self._is_due = False
            self._link.publish_board(self._board())
            for sample in self._step_timer.take_samples():
                self._link.publish_step(sample)
        if self._finished:
            finished, self._finished = self._finished, []
            for progress, at in finished:
                self._publish_finished(progress, at)

    def record_tokens(
        self, output: SchedulerOutput, results: dict[int, EngineCoreOutputs], now: float
    ) -> None:
        """Count a step whose tokens are there, with the `EngineCoreOutputs` by client."""
        if self._delivery is not None or self._is_due:  # mostly done while the device computed
            self.catch_up()
        ended: Sequence[str] = ()
        if self._ended:
            ended, self._ended = self._ended, []
        self._delivery = Delivery(output, results, now, self._left, ended)
        self._left = False

    def _take_in(self) -> None:
        """Look at the last step whose tokens are there, if that is still to be done."""
        delivery, self._delivery = self._delivery, None
        if delivery is None:
            return
        names = self._receivers(delivery)
        if names:
            for name in self._gaps.note_step(names, delivery.now):
                progress = self._progress.get(name)
                if progress is not None:
                    self._gaps.begin(name, progress.tokens, progress.tracked.targets.tpot)
        for name in delivery.ended:
            self._end(name, delivery.now)

    def _receivers(self, delivery: Delivery) -> list[str]:
        """List who got tokens: all that the step computed for, unless some are amid their prefill.

        vLLM tells of a request that goes on only if it has tokens. A list of vLLM's own if there is one.
        """
        output, results = delivery.output, delivery.results
        told = 0
        for result in results.values():
            told += len(result.outputs)
        if told == len(output.num_scheduled_tokens) and (
            not delivery.left or all(map(NEW_TOKENS, _items(results)))
        ):
            went_on = output.scheduled_cached_reqs.req_ids
            return went_on if len(went_on) == told else list(output.num_scheduled_tokens)
        return [item.request_id for item in _items(results) if item.new_token_ids]

    def _end(self, name: str, now: float) -> None:
        """Take in that a request ran to its end."""
        progress = self._progress.pop(name, None)
        if progress is not None:
            self._gaps.settle(name)
            self._finished.append((progress, now))

    def _publish_finished(self, progress: Progress, now: float) -> None:
        self._link.publish_finished(finished_request(progress, now, self._tracker))

    def _board(self) -> BoardRecord:
        scheduler, limits, guard, tracker = self._scheduler, self._view.limits, self._guard, self._tracker
        turns = self._turn_counts
        running, waiting = scheduler.get_request_counts()
        unfinished = scheduler._inflight_prefills
        gauge_1, gauge_2, gauge_3, gauge_4, gauge_5, gauge_6 = guard.gauges()
        return BoardRecord(
            time=self._view.now or self._link.clock(),
            step=scheduler.current_step,
            running=running,
            waiting=waiting,
            waiting_prefill_tokens=self._queue.tokens,
            unfinished_prefill_tokens=(
                sum(r.num_tokens - r.num_computed_tokens for r in unfinished) if unfinished else 0
            ),
            waiting_kv_blocks=self._queue.blocks,
            free_kv_blocks=self._view.free_blocks,
            total_kv_blocks=limits.total_blocks,
            block_size=self._tokens_per_block(),
            arrivals=self._arrivals,
            arrived_tokens=self._arrived_tokens,
            finishes=self._finishes,
            preemptions=self._preemptions,
            fallback_steps=guard.fallback_steps,
            error_code=guard.error,
            applied_hash=self._applied_hash,
            disabled=guard.disabled,
            max_step_tokens=limits.max_step_tokens,
            predictor=tracker.predictor_code,
            prediction_failures=tracker.failures,
            predictions_learned=tracker.learned,
            ignored_overrides=tracker.ignored_overrides,
            step_tokens=guard.step_tokens,
            skipped=guard.skipped,
            gauge_1=gauge_1,
            gauge_2=gauge_2,
            gauge_3=gauge_3,
            gauge_4=gauge_4,
            gauge_5=gauge_5,
            gauge_6=gauge_6,
            turn_code=turns.code,
            turns=turns.turns,
            turn_wait_seconds=turns.wait_seconds,
        )

    def _tokens_per_block(self) -> int:
        """Return the tokens per block of a mean prompt; all have the same if each layer keeps all tokens."""
        limits = self._view.limits
        if not limits.other_groups:
            return max(limits.block_size // max(limits.kv_groups, 1), 1)
        mean = max(self._arrived_tokens // max(self._arrivals, 1), 1)
        return max(mean // limits.blocks(mean), 1)


def _items(results: dict[int, EngineCoreOutputs]) -> Iterator[EngineCoreOutput]:
    return chain.from_iterable(result.outputs for result in results.values())


def finished_request(progress: Progress, now: float, tracker: RequestTracker) -> FinishedRequest:
    """Make the record of a request that finished at `now`, held against its targets."""
    request, tracked = progress.request, progress.tracked
    first = progress.tokens.first or now
    ttft = first - request.arrival_time
    e2e = now - request.arrival_time
    gaps = request.num_output_tokens - 1
    tpot = max((progress.tokens.last - first) / gaps, 0.0) if gaps > 0 else 0.0  # clocks may step back
    targets, impossible = tracker.assess_request(tracked, request.num_output_tokens)
    pairs = (targets.ttft, ttft), (targets.tpot, tpot), (targets.e2e, e2e)
    met = flag_targets(
        Targets(*[target if target is not None and value <= target else None for target, value in pairs])
    )
    return FinishedRequest(
        time=now,
        prompt_tokens=request.num_prompt_tokens,
        output_tokens=request.num_output_tokens,
        ttft=max(ttft, 0.0),
        max_itl=progress.tokens.most,
        tpot=tpot,
        itl_violations=progress.tokens.violations,
        e2e=max(e2e, 0.0),
        queue_time=max(
            (now if progress.scheduled is None else progress.scheduled) - request.arrival_time, 0.0
        ),
        targets=int(flag_targets(targets)),
        met=int(met),
        preemptions=request.num_preemptions,
        overridden=int(flag_targets(tracked.overrides.targets)),
        impossible=int(impossible),
        predicted_tokens=tracked.first_prediction,
    )
