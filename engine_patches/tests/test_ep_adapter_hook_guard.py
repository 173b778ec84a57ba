"""Whatever of ours raises, in whichever hook, vLLM's real scheduler serves everyone as if we were not there.

Every public method of every part that a hook can reach is made to raise, one after the other, in every call.
"""

import inspect
import itertools

import pytest
from ep_adapter_trial import BASES, MARKS, Trial, load

from headrace_engine.contracts import PolicyDocument, Prediction, Slo
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.plan import Plan, RunningLimits
from headrace_engine.sim.form import Form

pytestmark = MARKS

SLO = Slo(ttft_ms=800, tpot_ms=15, e2e_ms=5000)
DOCUMENTS = (
    Form(PolicyDocument("AccelGen", slo=SLO), {"skipping": True, "preemption": "Always"}),
    PolicyDocument("EconoServe", slo=SLO, prediction=Prediction("Quantile")),
    PolicyDocument("LARRY", slo=Slo(e2e_scale_percent=300)),
)
ELSEWHERE = {  # public, but not on the way from a hook of vLLM's that has not failed before
    "RequestTracker.given_up",  # which others of its methods read
    "MemoryLink.stage",  # tests and simulations only
    "MemoryLink.start",  # before the engine serves
    "MemoryLink.mute",  # once telling has failed
    "StepTimer.mute",
    "PolicyGuard.abandon_step",
    "StepTimer.record_drafts",  # only with drafts
    "SchedulerView.encoder_tokens",  # only with pictures
    "headrace_engine.adapter.policy_scheduler.count_encoded",
}


class OursError(Exception):
    """A mistake of ours."""


def parts():
    from headrace_engine.adapter import (
        policy_guard,
        prefix_cache,
        request_tracker,
        scheduler_view,
        step_planner,
        step_timer,
        telemetry,
    )
    from headrace_engine.sim.clock import MemoryLink

    return (
        request_tracker.RequestTracker,
        policy_guard.PolicyGuard,
        step_timer.StepTimer,
        prefix_cache.PrefixCache,
        step_planner.StepPlanner,
        telemetry.Telemetry,
        scheduler_view.SchedulerView,
        MemoryLink,
    )


def methods():
    for part in parts():
        for name, method in vars(part).items():
            if not name.startswith("_") and (inspect.isfunction(method) or isinstance(method, property)):
                yield part, name
    from headrace_engine.adapter.plan_queue import PlanQueue  # the others of its methods are vLLM's, not ours

    yield from ((PlanQueue, name) for name in ("begin", "show_all", "tell"))


def functions():
    from headrace_engine.adapter import policy_scheduler, request_tracker, step_planner, step_timer, telemetry

    yield from (
        (policy_scheduler, "count_encoded"),
        (policy_scheduler, "ran_to_its_end"),
        (telemetry, "ran_to_its_end"),
        (telemetry, "finished_request"),
        (step_timer, "step_sample"),
        (request_tracker, "read_overrides"),
        (step_planner.StepPlanner, "_apply_limits"),
    )


class Mine:
    """What raises instead of the attribute `name` of `owner`, once armed."""

    def __init__(self, monkeypatch, owner, name):
        self.armed, self.raised = False, 0
        original = vars(owner)[name]

        def instead(*args, **kwargs):
            if self.armed:
                self.raised += 1
                raise OursError(name)
            get = original.fget if isinstance(original, property) else original
            return get(*args, **kwargs)

        monkeypatch.setattr(owner, name, property(instead) if isinstance(original, property) else instead)


def serve(trial, mine):
    """Documents change and clients leave meanwhile; everyone else is served in full."""
    from vllm.v1.request import RequestStatus

    requests, documents = load(30), itertools.cycle(DOCUMENTS)
    links = trial.link
    mine.armed = True
    gone = set()

    def meanwhile():
        if trial.engine.steps % 25 == 24:
            mine.armed = False  # staging is the test's own doing
            links.stage(next(documents))
            mine.armed = True
        if trial.engine.steps == 60 and trial.scheduler.running:
            name = trial.scheduler.running[0].request_id
            gone.add(name)
            trial.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    trial.engine.before_step = meanwhile
    trial.engine.run(requests)
    trial.scheduler.shutdown()
    wanted = {each.request_id: each.max_tokens for each in requests if each.request_id not in gone}
    told = {name: len(tokens) for name, tokens in trial.engine.tokens.items() if name not in gone}
    assert gone
    assert told == wanted
    assert trial.pool.get_num_free_blocks() == trial.free_at_first
    assert not trial.scheduler.requests
    assert not trial.scheduler.running
    assert len(trial.scheduler.waiting) == 0


@BASES
def test_nothing_of_ours_that_raises_reaches_vllm(asynchronous, subtests):
    for owner, name in (*methods(), *functions()):
        with subtests.test(part=owner.__name__, method=name), pytest.MonkeyPatch.context() as monkeypatch:
            mine = Mine(monkeypatch, owner, name)
            trial = Trial(asynchronous, DOCUMENTS[0])
            serve(trial, mine)
            assert mine.raised or f"{owner.__name__}.{name}" in ELSEWHERE


@BASES
@pytest.mark.parametrize(
    ("first", "then"),
    [("Telemetry.record_schedule", "MemoryLink.mute"), ("StepPlanner.begin", "PolicyGuard.abandon_step")],
)
def test_nor_what_raises_when_something_failed_already(asynchronous, first, then, monkeypatch):
    named = {part.__name__: part for part in parts()}
    causes, mine = (
        Mine(monkeypatch, named[part], method) for part, method in (each.split(".") for each in (first, then))
    )
    trial = Trial(asynchronous, DOCUMENTS[0])
    causes.armed = True
    serve(trial, mine)
    assert mine.raised


def test_a_step_that_could_not_be_planned_is_counted_and_vllms_own(monkeypatch):
    stock = Trial(False).run(load(30))
    from headrace_engine.adapter.step_planner import StepPlanner

    mine = Mine(monkeypatch, StepPlanner, "begin")
    trial = Trial(False, DOCUMENTS[0])
    mine.armed = True
    assert trial.run(load(30)).course == stock.course
    assert trial.link.board.fallback_steps == trial.engine.steps


@BASES
def test_a_plan_that_fails_half_way_leaves_nothing_behind(asynchronous, monkeypatch):
    from headrace_engine.adapter.step_planner import StepPlanner

    def fail(*_):
        raise OursError

    stock = Trial(asynchronous).run(load(30))
    trial = Trial(asynchronous, PolicyDocument("FCFS"))
    monkeypatch.setattr(StepPlanner, "_cap_chunks", fail)

    def plan(view):  # the order is applied before the caps fail
        return Plan(8, (), RunningLimits(view.running[::-1], (), (), dict.fromkeys(view.running, 1)))

    class Half(Policy):
        def plan(self, view):
            return plan(view) if view.running else Plan(view.limits.max_step_tokens)

    trial.force(Half)
    assert trial.run(load(30)).course == stock.course


@BASES
def test_policies_that_can_not_start_leave_the_scheduler_that_vllm_made(asynchronous, monkeypatch):
    """Made once: a second would find the ports of the first taken."""
    from headrace_engine.adapter.policy_scheduler import add_policies
    from headrace_engine.sim.clock import MemoryLink, VirtualClock

    def fail(*_):
        raise OursError

    stock = Trial(asynchronous).run(load(30))
    trial = Trial(asynchronous)
    state = dict(vars(trial.scheduler))
    with monkeypatch.context() as patch:
        patch.setattr(MemoryLink, "start", fail)
        with pytest.raises(OursError):
            add_policies(trial.scheduler, MemoryLink(VirtualClock()))
    assert vars(trial.scheduler) == state
    assert trial.run(load(30)).course == stock.course


@BASES
def test_policies_move_into_the_scheduler_that_vllm_made(asynchronous):
    from headrace_engine.adapter.policy_scheduler import add_policies
    from headrace_engine.sim.clock import MemoryLink

    stock = Trial(asynchronous).run(load(30))
    trial = Trial(asynchronous)
    link = MemoryLink(trial.engine.clock, document=PolicyDocument("FCFS"))
    trial.scheduler = trial.engine.scheduler = add_policies(trial.scheduler, link)
    assert trial.run(load(30)).course == stock.course
    assert link.board.finishes == 30
