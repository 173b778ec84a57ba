"""Runs a policy such that whatever it does costs at most its own step, never the engine.

A policy may raise, plan the impossible, take too long or let nobody run. The step then goes on FCFS, from the
point where the failure showed, and is counted. The policy starts afresh at the next step with the queue as it
is, since its state can't be trusted any more. If that happens several steps in a row, or nobody could run for
several, the policy is `disabled` and all steps are FCFS until the next document.

Nothing here imports vLLM. The stopwatch measures CPU seconds of this thread, so that a busy machine is not
taken for a slow policy; on a virtual clock it stands still.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator

from headrace_engine.control.records import ErrorCode
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.engine_view import EngineView, RequestView
from headrace_engine.policies.plan import NO_LIMITS, Plan, RunningLimits
from headrace_engine.policies.registry import MOST_GAUGES

PLAN_SECONDS = 0.05  # of CPU time in one step; planning takes about a thousandth of it
FAILURES_IN_A_ROW = 5  # before the policy is disabled
EMPTY_STEPS_IN_A_ROW = 8  # that a policy may cause; one or two are a way to wait

log = logging.getLogger("vllm.headrace")


class InvalidPlanError(Exception):
    """The policy planned something that can't be done."""


class OverrunError(Exception):
    """The policy took longer than PLAN_SECONDS."""


class PolicyGuard:
    """One engine's policy under supervision; `error` is the last failure under the present document."""

    def __init__(self, view: EngineView, make: Callable[[], Policy], stopwatch: Callable[[], float]) -> None:
        self._view = view
        self._make = make
        self._stopwatch = stopwatch
        self._policy: Policy | None = None  # None: has to start afresh
        self.decides_nothing = False  # the policy that has started
        self._unlimited = Plan(step_tokens=view.limits.max_step_tokens)  # leaves all to the engine
        self._plan: Plan | None = None  # of the step under way, unless it is FCFS
        self._failed = False  # since the last step ended
        self._failures = 0  # in a row
        self._empty_steps = 0  # in a row
        self._spent = 0.0  # seconds of this step, or of preparing the next
        self._prepares = True  # unless that failed
        self.step_tokens = view.limits.max_step_tokens  # of the step planned last
        self.skipped = 0  # running requests that it skips
        self.fallback_steps = 0
        self.error = ErrorCode.NONE
        self.disabled = False

    def install_policy(self, make: Callable[[], Policy]) -> None:
        """Put another policy in force from the next step on; requests in flight notice nothing."""
        self._make = make
        self._set_policy(None)
        self._failed = self.disabled = False
        self._failures = self._empty_steps = 0
        self._prepares = True
        self.error = ErrorCode.NONE

    def add(self, request: RequestView) -> None:
        """Take in `request`, which joined the queue."""
        if self._policy is not None:
            try:
                self._policy.add(request)
            except Exception as error:
                self._fail(error)

    def discard(self, request: RequestView) -> None:
        """Forget `request`, which left the queue."""
        if self._policy is not None:
            try:
                self._policy.discard(request)
            except Exception as error:
                self._fail(error)

    def report_finished(self, request: RequestView, predicted: float) -> None:
        """Tell the policy that `request` ran to its end; `predicted` output was expected when it arrived."""
        if self._policy is not None:
            try:
                self._policy.record_finished(request, predicted)
            except Exception as error:
                self._fail(error)

    def plan_step(self) -> Plan:
        """Return a plan that can be carried out; take what it admits from `admitted`."""
        self._plan = None
        self._spent = 0.0
        if not (self.disabled or self._failed):
            try:
                self._plan = self._checked_plan()
            except Exception as error:
                self._fail(error)
        plan = self._plan or self._unlimited
        self.step_tokens, self.skipped = plan.step_tokens, len(plan.running_limits.skipped)
        return plan

    def prepare_next(self) -> None:
        """Let the policy do, while the device computes, what the next step would wait for.

        One that fails in it has to do without until the next document.
        """
        policy = self._policy
        if policy is not None and policy.preparer is not None and self._prepares:
            self._spent = 0.0
            try:
                started = self._stopwatch()
                policy.preparer(self._view)
                self._charge(started)
            except Exception as error:
                self._prepares = False
                self._fail(error)

    def admitted(self) -> Iterator[RequestView] | None:
        """Yield the planned requests one by one, FCFS once the policy fails; None: the queue as it is."""
        if self._plan is None or (self._plan.admitted is None and not self._plan.running_limits.preempted):
            return None
        return self._admit(self._plan)

    def gauges(self) -> tuple[float, ...]:
        """Return the policy's inner state, `MOST_GAUGES` numbers; 0 where it shows none."""
        shown: list[float] = []
        if self._policy is not None and self._policy.gauges is not None:
            try:
                shown = [float(value) for value in self._policy.gauges()][:MOST_GAUGES]
            except Exception as error:
                self._fail(error)
        return (*shown, *[0.0] * (MOST_GAUGES - len(shown)))

    def abandon_step(self, error: Exception) -> None:
        """Let the step under way go on FCFS, since its plan could not be carried out."""
        self._plan = None
        self._fail(error)

    def finish_step(self, scheduled_tokens: int) -> None:
        """Close the step, in which so many tokens were scheduled."""
        if self._failed or self.disabled:
            self.fallback_steps += 1
        self._failures = self._failures + 1 if self._failed else 0
        self._failed = False
        if self._failures == FAILURES_IN_A_ROW:
            self._disable(f"failed {FAILURES_IN_A_ROW} steps in a row")
        running_limits = NO_LIMITS if self._plan is None else self._plan.running_limits
        empty = not scheduled_tokens and bool(running_limits.skipped or running_limits.preempted)
        self._empty_steps = self._empty_steps + 1 if empty else 0
        if self._empty_steps == EMPTY_STEPS_IN_A_ROW:
            self.error = ErrorCode.INVALID_PLAN
            self._disable(f"let nobody run for {EMPTY_STEPS_IN_A_ROW} steps in a row")

    def _disable(self, why: str) -> None:
        self.disabled = True
        self._set_policy(None)
        log.error("headrace: policy disabled until the next document: it %s", why)

    def _checked_plan(self) -> Plan:
        started = self._stopwatch()
        policy = self._policy
        if policy is None:
            policy = self._make()
            for request in self._view.waiting:
                policy.add(request)
            self._set_policy(policy)
            started = self._stopwatch()  # starting afresh takes as long as the queue does
        plan = policy.plan(self._view)
        self._charge(started)
        _check(plan, self._view)
        return plan

    def _admit(self, plan: Plan) -> Iterator[RequestView]:
        waiting, excluded = self._view.waiting, set(plan.running_limits.preempted)
        try:
            yield from self._planned(plan, excluded)
        except Exception as error:
            self._fail(error)
            left = tuple(waiting)
            yield from (request for request in left if request in waiting and request not in excluded)

    def _planned(self, plan: Plan, excluded: Collection[RequestView]) -> Iterator[RequestView]:
        """Yield what the plan admits, each request checked as it is taken."""
        waiting = self._view.waiting
        ranked = iter(tuple(waiting) if plan.admitted is None else plan.admitted)
        anyone = False
        while True:
            started = self._stopwatch()
            request = next(ranked, None)
            self._charge(started)
            if request is None:
                break
            if request in excluded:
                continue
            if request not in waiting:
                raise InvalidPlanError("admits a request that is not in the queue, or admits one twice")
            anyone = True
            yield request
            if len(self._view.running) >= self._view.limits.max_running:
                return  # whoever is asked for now would not start
        idle = not (self._view.running or self._view.holding)
        if idle and not anyone and len(waiting) > len(excluded):
            raise InvalidPlanError("admits nobody although nothing runs")

    def _charge(self, started: float) -> None:
        self._spent += self._stopwatch() - started
        if self._spent > PLAN_SECONDS:
            raise OverrunError(f"took {self._spent:.3f} s of CPU time, more than {PLAN_SECONDS} s")

    def _fail(self, error: Exception) -> None:
        self.error = {InvalidPlanError: ErrorCode.INVALID_PLAN, OverrunError: ErrorCode.OVERRAN}.get(
            type(error), ErrorCode.RAISED
        )
        if not self._failures:
            log.warning("headrace: this step goes on FCFS, its policy failed: %r", error, exc_info=error)
        self._failed = True
        self._set_policy(None)

    def _set_policy(self, policy: Policy | None) -> None:
        self._policy = policy
        self.decides_nothing = policy is not None and policy.decides_nothing


def _check(plan: Plan, view: EngineView) -> None:
    """Raise InvalidPlanError unless the plan can be carried out; what it admits is checked as it is taken."""
    if not isinstance(plan, Plan):
        raise InvalidPlanError(f"is a {type(plan).__name__}, not a Plan")
    if not _is_whole_number(plan.step_tokens) or not 1 <= plan.step_tokens <= view.limits.max_step_tokens:
        raise InvalidPlanError(f"step of {plan.step_tokens} tokens, not 1 to {view.limits.max_step_tokens}")
    if plan.running_limits is not NO_LIMITS:
        _check_limits(plan.running_limits, view)


def _check_limits(running_limits: RunningLimits, view: EngineView) -> None:
    running = set(view.running)
    if running_limits.running is not None and (
        len(running_limits.running) != len(running) or set(running_limits.running) != running
    ):
        raise InvalidPlanError("running order does not name each running request once")
    if not running.issuperset(running_limits.skipped) or not running.issuperset(running_limits.preempted):
        raise InvalidPlanError("skips or preempts a request that does not run")
    if len(set(running_limits.preempted)) != len(running_limits.preempted):
        raise InvalidPlanError("preempts a request twice")
    if any(not _is_whole_number(cap) or cap < 1 for cap in running_limits.chunk_caps.values()):
        raise InvalidPlanError("caps a chunk at what is no number of tokens from 1 on")


def _is_whole_number(tokens: object) -> bool:
    """Tell whether it is a whole number, whatever a policy's annotations promise: on others vLLM fails."""
    return isinstance(tokens, int)
