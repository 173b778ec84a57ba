"""vLLM's schedulers with a policy: hooks around vLLM's own methods, none of which is replaced.

No exception of ours leaves a hook, since it would end the engine: what is called besides vLLM's own method
is `HookGuard`. A step that could not be planned is vLLM's own. If telling fails it ends, its heartbeat too,
while the engine and its policy go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar, cast

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler

from headrace_engine.adapter.control_link import ControlLink, Staged
from headrace_engine.adapter.encoder import count_encoded
from headrace_engine.adapter.hand_back import hand_back
from headrace_engine.adapter.hook_guard import HookGuard
from headrace_engine.adapter.plan_queue import PlanQueue
from headrace_engine.adapter.policy_guard import PolicyGuard
from headrace_engine.adapter.request_tracker import RequestTracker, ran_to_its_end
from headrace_engine.adapter.resume import ResumedRequests
from headrace_engine.adapter.scheduler_view import SchedulerView, read_limits
from headrace_engine.adapter.step_planner import StepPlanner
from headrace_engine.adapter.step_timer import StepTimer
from headrace_engine.adapter.telemetry import Telemetry
from headrace_engine.adapter.turn_taking import TurnCounts, TurnTaking
from headrace_engine.adapter.vllm_types import (
    EngineCoreOutputs,
    ModelRunnerOutput,
    SchedulerOutput,
    VllmRequest,
    VllmScheduler,
)
from headrace_engine.policies.composition import Policy

log = logging.getLogger("vllm.headrace")


class PolicyScheduler:
    """Mixed in before one of vLLM's schedulers; `link` is set by `derive_scheduler`."""

    link: ClassVar[ControlLink]
    requests: dict[str, VllmRequest]  # vLLM's

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._take_part()

    def _take_part(self) -> None:
        """Set up what the hooks need; the scheduler itself is ready."""
        vllm = cast("VllmScheduler", self)
        limits = self._engine_limits = read_limits(vllm)
        queue = PlanQueue(limits, self._add_to_policy, self._drop_from_policy)
        link = self.link
        self._call_safely = HookGuard()
        self._resumed = ResumedRequests()
        self._step_timer = StepTimer(link.known_cost, always=link.listens)
        self._tracker = RequestTracker(
            self._step_timer, limits, link.make_predictor, link.stopwatch, link.most_output
        )
        view = SchedulerView(vllm, limits, queue, self._step_timer, self._tracker)
        self._prefix_cache = view.prefix_cache
        self._guard = PolicyGuard(view, Policy, self.link.stopwatch)
        self._step = StepPlanner(vllm, view, queue, self._guard)
        self._in_force: Staged | None = None
        self._hands_back = False
        self._planned: tuple[SchedulerOutput, float] | None = None  # and when, if it is still to be recorded
        self._turns: TurnTaking | None = None
        self._turn_counts = TurnCounts()
        self._telemetry: Telemetry | None = None
        if self.link.listens:
            self._telemetry = Telemetry(
                vllm, view, queue, self._guard, self._tracker, self._step_timer, self._turn_counts, self.link
            )
        self.waiting = queue
        self.link.start(limits)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Plan, and let vLLM schedule."""
        if self._planned is not None:
            self._record_planned()
        if self.link.turn_group is not None or self._turns is not None:
            self._call_safely(self._join_group)
            if self._turns is not None and not self._call_safely(self._turns.may_schedule, failed=True):
                return self._schedule_nothing(*args, **kwargs)
        now = self._begin()
        tokens = 0
        try:
            output: SchedulerOutput = super().schedule(*args, **kwargs)  # type: ignore[misc]
            tokens = output.total_num_scheduled_tokens
        finally:
            if self._step.is_planned:
                self._call_safely(self._step.end, tokens)
        if self._turns is not None:
            self._call_safely(self._turns.note_scheduled, output)
        self._planned = output, now
        # Where no device computes nobody knows when the next step comes; and that one begins must be seen
        # before it is computed, which may take long, or for ever.
        if not tokens or (self._telemetry is not None and self._telemetry.at_rest):
            self._record_planned()
        return output

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> Any:
        """Tell what can wait: the device computes, and the last step's outputs are on their way."""
        if self._planned is not None:
            self._record_planned()
        if self._step.is_planned:
            self._call_safely(self._step.prepare_next)
        self._tell(Telemetry.catch_up)
        return super().get_grammar_bitmask(scheduler_output)  # type: ignore[misc]

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        """Let vLLM take in a step's tokens, then tell."""
        if self._planned is not None:  # where vLLM asks for no bitmask
            self._record_planned()
        if self._turns is not None:
            self._call_safely(self._turns.note_computed, scheduler_output)
        results: dict[int, EngineCoreOutputs] = super().update_from_output(  # type: ignore[misc]
            scheduler_output, model_runner_output
        )
        now = 0.0
        try:
            now = self.link.clock()
            self._step_timer.record_delivery(scheduler_output, now)
        except Exception as error:
            self._call_safely.report(self._step_timer.record_delivery, error)
        if scheduler_output.scheduled_spec_decode_tokens:
            self._call_safely(self._step_timer.record_drafts, scheduler_output, model_runner_output)
        if self._tracker.started:
            names = scheduler_output.num_scheduled_tokens.keys()
            self._call_safely(self._tracker.note_first_tokens, names, now)
        self._tell(Telemetry.record_tokens, scheduler_output, results, now)
        if self._resumed.silent:
            self._call_safely(self._resumed.put_out, results, self.requests.keys())
        if self._hands_back and scheduler_output.preempted_req_ids:
            self._call_safely(
                hand_back, self, self._engine_limits, scheduler_output.preempted_req_ids, results
            )
        if self._turns is not None:
            self._call_safely(self._turns.rest_if_idle)
        return results

    def add_request(self, request: VllmRequest) -> None:
        """Let vLLM enqueue a request, then tell; of a streamed input only the first part is a request."""
        if self._planned is not None:  # it is of those who are here now
            self._record_planned()
        super().add_request(request)  # type: ignore[misc]
        if self.requests.get(request.request_id) is request:
            self._call_safely(self._resumed.add, request)
            self._call_safely(self._tracker.find_request, request)
            self._tell(Telemetry.record_arrival, request)

    def _free_request(self, request: VllmRequest, *args: Any, **kwargs: Any) -> Any:
        if self._planned is not None:
            self._record_planned()
        self._call_safely(self._learn, request)
        self._call_safely(self._tracker.forget_request, request)
        if self._turns is not None:
            self._call_safely(self._end_in_turns, self._turns, request)
        self._tell(Telemetry.record_departure, request)
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]

    def _end_in_turns(self, turns: TurnTaking, request: VllmRequest) -> None:
        unloaded = self._tracker.unloaded_seconds(request, request.num_output_tokens)
        turns.note_ended(request.request_id, unloaded, whole=ran_to_its_end(request))

    def shutdown(self) -> None:
        """Stop the predictor and our thread, then vLLM's scheduler."""
        self._call_safely(self._tracker.close)
        self._call_safely(self.link.close)
        if self._turns is not None:
            self._call_safely(self._turns.close)
        super().shutdown()  # type: ignore[misc]

    def _join_group(self) -> None:
        """Take part in the turns of the group that the link names; of none if it names none."""
        group = self.link.turn_group
        if self._turns is not None and self._turns.group != group:
            self._turns.close()
            self._turns = None
        if self._turns is None and group is not None:
            self._turns = TurnTaking(
                cast("VllmScheduler", self), group, self.link.join_group, self.link.clock, self._turn_counts
            )

    def _schedule_nothing(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        """Schedule a step without tokens, as vLLM does while it is paused: workers hear of who has ended."""
        vllm = cast("VllmScheduler", self)
        # By the field: vLLM's setter logs each change.
        state, vllm._pause_state = vllm._pause_state, PauseState.PAUSED_ALL
        try:
            output: SchedulerOutput = super().schedule(*args, **kwargs)  # type: ignore[misc]
        finally:
            vllm._pause_state = state
        self._tell(Telemetry.record_schedule, output)
        return output

    def _begin(self) -> float:
        """Put a new document in force and plan the step; gives the time. Never raises."""
        now = 0.0
        try:
            now = self.link.clock()
            staged = self.link.staged
            if staged is not self._in_force and staged is not None:
                self._put_in_force(staged)
            self._step.begin(now)
        except Exception as error:
            self._call_safely(self._guard.abandon_step, error)
            self._step.is_planned = True  # or should have been: its books are closed
        return now

    def _record_planned(self) -> None:
        """Take down the last step that vLLM scheduled, and tell of it."""
        planned, self._planned = self._planned, None
        if planned is not None:
            self._call_safely(self._record_plan, *planned)
            self._tell(Telemetry.record_schedule, planned[0])

    def _record_plan(self, output: SchedulerOutput, now: float) -> None:
        if output.scheduled_new_reqs:
            self._tracker.note_started([new.req_id for new in output.scheduled_new_reqs])
        encoded = count_encoded(output, self.requests) if output.scheduled_encoder_inputs else 0
        self._step_timer.record_plan(output, now, encoded)

    def _put_in_force(self, staged: Staged) -> None:
        self._in_force = staged
        self._hands_back = staged.document.slice is not None and staged.document.slice.hand_back
        self._tell(Telemetry.catch_up)
        self._guard.install_policy(staged.make)
        self._call_safely(self._tracker.install_document, staged.document)
        self._tell(Telemetry.record_document, staged.document)
        log.info("headrace: policy %s (%s) in force", staged.document.policy, staged.document.hash)

    def _learn(self, request: VllmRequest) -> None:
        if ran_to_its_end(request):
            self._guard.report_finished(request, self._tracker.find_request(request).first_prediction)
            self._tracker.learn_from_request(request)

    def _add_to_policy(self, request: VllmRequest) -> None:
        self._call_safely(self._guard.add, request)

    def _drop_from_policy(self, request: VllmRequest) -> None:
        self._call_safely(self._prefix_cache.forget, request)
        self._call_safely(self._guard.discard, request)

    def _tell(self, event: Callable[..., None], *details: Any) -> None:
        telemetry = self._telemetry
        if telemetry is not None:
            try:
                event(telemetry, *details)
            except Exception as error:
                self._call_safely.report(event, error)
                self._telemetry = None
                self._call_safely(self._step_timer.mute)
                self._call_safely(self.link.mute)


def derive_scheduler(stock: type, link: ControlLink) -> type:
    """Derive `stock`, one of vLLM's two schedulers, with policies from `link`; TypeError for any other."""
    if stock is AsyncScheduler:
        return type("HeadraceAsyncScheduler", (PolicyScheduler, AsyncScheduler), {"link": link})
    if stock is Scheduler:
        return type("HeadraceScheduler", (PolicyScheduler, Scheduler), {"link": link})
    raise TypeError(f"{stock.__name__} is not a scheduler that policies can run on")


def add_policies(scheduler: Any, link: ControlLink) -> Any:
    """Make `scheduler`, which vLLM has made, one with policies from `link`; if that fails it stays as it is.

    Its state moves over, since it can be made only once: a second one would find the ports of its event
    publisher and of its KV connector taken.
    """
    ours: Any = object.__new__(derive_scheduler(type(scheduler), link))
    vars(ours).update(vars(scheduler))
    ours._take_part()
    return ours
