"""The adapter on the real vLLM scheduler, on a virtual clock; `test_ep_wheels` runs this on every wheel."""

import itertools
from types import SimpleNamespace

import pytest
from ep_adapter_trial import BASES, MARKS, Trial, load

from headrace_engine.contracts import PolicyDocument, StepBudget
from headrace_engine.control.records import ErrorCode
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.plan import NO_LIMITS, Plan, RunningLimits

pytestmark = MARKS


@BASES
def test_fcfs_is_stock_step_for_step(asynchronous):
    stock = Trial(asynchronous).run(load())
    patched = Trial(asynchronous, PolicyDocument("FCFS")).run(load())
    assert stock.engine.preemptions > 0
    assert patched.course == stock.course
    assert patched.link.board.fallback_steps == 0


@BASES
def test_before_any_document_it_is_stock(asynchronous):
    stock = Trial(asynchronous).run(load(30))
    patched = Trial(asynchronous, PolicyDocument("FCFS"))
    patched.link.staged = None
    assert patched.run(load(30)).course == stock.course
    assert patched.link.board.applied_hash == 0


class LastFirst:
    """The order of the queue turned round, so that requests start in another than that of arrival."""

    def __init__(self):
        self.queue = []

    def add(self, request):
        self.queue.append(request)

    def discard(self, request):
        self.queue.remove(request)

    def ranked(self, _view):
        yield from self.queue[::-1]


@BASES
def test_another_order_of_running_holds_for_its_step_only(asynchronous):
    """Afterwards the victim is again who started last, not who arrived last."""
    turned = []

    def now_and_then(view):
        running = list(view.running)
        prefills = any(each.num_computed_tokens < each.num_tokens - 1 for each in running)
        if prefills or view.free_blocks < 2 * len(running):
            return RunningLimits()  # the turned order might decide who gets tokens, or loses its KV
        turned.append(running != sorted(running, key=lambda request: request.arrival_time))
        return RunningLimits(running[::-1])

    courses = []
    for limiter in (None, now_and_then):
        trial = Trial(asynchronous, PolicyDocument("FCFS"))
        order = LastFirst()
        trial.force(lambda order=order, limiter=limiter: Policy(order, limiter=limiter))
        courses.append(trial.run(load()).course)
        assert trial.engine.preemptions > 0
    assert any(turned)
    assert courses[0] == courses[1]


@BASES
@pytest.mark.parametrize(
    "document",
    [
        PolicyDocument("LARRY"),
        PolicyDocument("LARRY", {"alpha": 0}),
        PolicyDocument("LARRY", {"alpha": 100_000}, StepBudget("Fixed", 128)),
        PolicyDocument("FCFS", step_budget=StepBudget("Fixed", 64)),
    ],
    ids=["larry", "alpha 0", "large alpha, small steps", "fcfs, small steps"],
)
def test_policies_finish_everything(asynchronous, document):
    trial = Trial(asynchronous, document).run(load())
    assert trial.link.board.fallback_steps == 0
    assert trial.link.board.error_code == ErrorCode.NONE


@BASES
@pytest.mark.parametrize("policy", ["FCFS", "LARRY", "EconoServe"])
def test_a_policy_hears_of_everyone_where_vllm_asks_for_no_bitmask(asynchronous, policy, monkeypatch):
    trial = Trial(asynchronous, PolicyDocument(policy))
    monkeypatch.setattr(trial.scheduler, "get_grammar_bitmask", lambda output: None)
    trial.run(load())
    assert trial.link.board.fallback_steps == 0
    assert trial.link.board.error_code == ErrorCode.NONE
    assert not trial.scheduler.waiting._untold


def test_a_policy_hears_of_who_is_put_back_and_then_leaves():
    trial = Trial(False, PolicyDocument("FCFS"))
    heard = []
    order = SimpleNamespace(
        add=lambda request: heard.append(("joined", request.request_id)),
        discard=lambda request: heard.append(("left", request.request_id)),
        ranked=lambda view: iter(tuple(view.waiting)),
    )
    trial.force(lambda: Policy(order))
    first, second = load(2)
    trial.scheduler.add_request(first)
    trial.scheduler.schedule()  # the policy starts with it
    queue = trial.scheduler.waiting
    queue.tell()
    heard.clear()
    queue.add_request(second)
    queue.begin(None)
    queue.remove_request(second)
    queue.prepend_request(second)
    queue.tell()
    assert heard == [("joined", second.request_id)]  # that it was in vLLM's hands nobody need know
    queue.begin(None)
    queue.remove_request(second)
    queue.prepend_request(second)
    queue.remove_request(second)
    queue.tell()
    assert heard[1:] == [("left", second.request_id)]


@pytest.mark.parametrize(
    ("setting", "value"), [("enable_chunked_prefill", False), ("disable_chunked_mm_input", True)]
)
def test_small_steps_never_block_an_engine_that_splits_no_prompt(monkeypatch, setting, value):
    blocks = 4096  # nothing is preempted: a prompt with its output may be longer than any step
    config = Trial(False, blocks=blocks).scheduler.scheduler_config
    monkeypatch.setattr(config, setting, value)  # the next engine with these settings shares it
    trial = Trial(False, PolicyDocument("FCFS", step_budget=StepBudget("Fixed", 64)), blocks=blocks)
    assert trial.link.limits.min_step_tokens == trial.link.limits.max_step_tokens == 512

    def not_for_ever():
        assert trial.engine.steps < 10_000

    trial.engine.before_step = not_for_ever
    trial.run([request for request in load(40) if request.num_prompt_tokens < 400])
    assert trial.engine.preemptions == 0


def test_larry_serves_short_prompts_first():
    from headrace_engine.sim.clock import START
    from headrace_engine.sim.vllm_objects import make_request

    def burst():
        sizes = [800] * 8 + [20] * 8
        return [make_request(str(i), size, 20, START + i / 1000) for i, size in enumerate(sizes)]

    def mean_end(policy):
        finished = Trial(False, PolicyDocument(policy), blocks=64).run(burst()).engine.finished
        return sum(finished[str(i)] for i in range(8, 16)) / 8 - START

    assert mean_end("LARRY") < mean_end("FCFS") / 2


@BASES
@pytest.mark.parametrize("seed", range(2))
def test_chaos_loses_nothing(asynchronous, seed):
    from ep_chaos import chaos

    trial = Trial(asynchronous, PolicyDocument("FCFS"))
    policy, parts = chaos(seed)
    trial.force(lambda: policy)
    trial.run(load(60))
    assert trial.link.board.fallback_steps == 0
    assert all(parts.done.values()), parts.done


@BASES
def test_policies_change_in_flight(asynchronous):
    trial = Trial(asynchronous, PolicyDocument("FCFS"))
    documents = itertools.cycle(
        [PolicyDocument("LARRY"), PolicyDocument("FCFS", step_budget=StepBudget("Fixed", 100))]
    )

    def now_and_then():
        if trial.engine.steps % 7 == 0:
            trial.link.stage(next(documents))

    trial.engine.before_step = now_and_then
    trial.run(load())
    assert trial.link.board.applied_hash == int(trial.link.staged.document.hash, 16)


def raising(view):
    raise ZeroDivisionError


def twice(view):
    first = next(iter(view.waiting), None)
    return Plan(view.limits.max_step_tokens, [first, first] if first else [])


def broken(plan):
    return type("Broken", (Policy,), {"plan": lambda self, view: plan(view)})


STRANGER = object()
NONSENSE = {
    "raises": (raising, ErrorCode.RAISED),
    "returns nothing": (lambda _: None, ErrorCode.INVALID_PLAN),
    "no budget": (lambda _: Plan(0), ErrorCode.INVALID_PLAN),
    "budget above the engine's": (lambda v: Plan(v.limits.max_step_tokens + 1), ErrorCode.INVALID_PLAN),
    "admits a stranger": (lambda v: Plan(512, [STRANGER]), ErrorCode.INVALID_PLAN),
    "admits twice": (twice, ErrorCode.INVALID_PLAN),
    "admits nobody ever": (lambda _: Plan(512, []), ErrorCode.INVALID_PLAN),
    "skips all for ever": (
        lambda v: Plan(512, None, RunningLimits(skipped=list(v.running))),
        ErrorCode.INVALID_PLAN,
    ),
    "skips a stranger": (
        lambda _: Plan(512, None, RunningLimits(skipped=[STRANGER])),
        ErrorCode.INVALID_PLAN,
    ),
    "drops from running": (
        lambda v: Plan(512, None, RunningLimits(running=v.running[1:] or [STRANGER])),
        ErrorCode.INVALID_PLAN,
    ),
    "caps at 0": (lambda v: Plan(512, None, RunningLimits(chunk_caps={STRANGER: 0})), ErrorCode.INVALID_PLAN),
    "caps at a part": (
        lambda v: Plan(512, None, RunningLimits(chunk_caps={STRANGER: 1.5})),
        ErrorCode.INVALID_PLAN,
    ),
    "preempts twice": (
        lambda v: Plan(512, None, RunningLimits(preempted=[*v.running[:1], *v.running[:1]])),
        ErrorCode.INVALID_PLAN,
    ),
    "a budget that is no count": (lambda _: Plan(100.5), ErrorCode.INVALID_PLAN),
}


@pytest.mark.parametrize(("plan", "code"), NONSENSE.values(), ids=NONSENSE)
def test_a_failing_policy_costs_only_its_steps(plan, code):
    trial = Trial(True, PolicyDocument("FCFS"))
    trial.force(broken(plan))
    trial.run(load(30))
    board = trial.link.board
    assert board.fallback_steps > 0
    assert board.error_code == code


def test_a_slow_policy_costs_its_step():
    from headrace_engine.adapter.policy_guard import PLAN_SECONDS

    trial = Trial(False, PolicyDocument("FCFS"))
    seconds = itertools.count()
    trial.scheduler._guard._stopwatch = lambda: next(seconds) * PLAN_SECONDS * 1.01
    trial.run(load(10))
    assert trial.link.board.error_code == ErrorCode.OVERRAN
    assert trial.link.board.disabled


@BASES
def test_what_a_policy_prepares_is_done_between_its_plans(asynchronous):
    trial, done = Trial(asynchronous, PolicyDocument("FCFS")), []

    def limit(view):
        done.append(("plan", view.now))
        return NO_LIMITS

    trial.force(lambda: Policy(limiter=limit, preparer=lambda view: done.append(("prepare", view.now))))
    trial.run(load(30))
    prepared = [place for place, (name, _) in enumerate(done) if name == "prepare"]
    assert len(prepared) > trial.engine.steps / 2  # an empty step may have none
    assert all(done[place - 1] == ("plan", done[place][1]) for place in prepared)


@BASES
def test_preparing_that_fails_costs_the_next_step(asynchronous):
    trial, seen = Trial(asynchronous, PolicyDocument("FCFS")), []

    def prepare(_):
        seen.append(trial.scheduler._guard.fallback_steps)
        if len(seen) >= 3:
            raise ZeroDivisionError

    trial.force(lambda: Policy(limiter=lambda _: NO_LIMITS, preparer=prepare))
    trial.run(load(30))
    assert seen == [0, 0, 0]  # then it does without
    assert trial.link.board.fallback_steps == 1
    assert not trial.link.board.disabled
    assert trial.link.board.error_code == ErrorCode.RAISED


@BASES
def test_failing_all_the_time_is_stock_and_disables_the_policy(asynchronous):
    stock = Trial(asynchronous).run(load(40))
    trial = Trial(asynchronous, PolicyDocument("FCFS"))
    trial.force(broken(raising))
    assert trial.run(load(40)).course == stock.course
    assert trial.link.board.disabled
    assert trial.link.board.fallback_steps == trial.engine.steps


def test_a_new_document_enables_again():
    from headrace_engine.adapter.policy_guard import FAILURES_IN_A_ROW

    trial = Trial(False, PolicyDocument("FCFS"))
    trial.force(broken(raising))

    def repair():
        if trial.engine.steps == FAILURES_IN_A_ROW:
            assert trial.link.board.disabled
            trial.link.stage(PolicyDocument("LARRY"))

    trial.engine.before_step = repair
    trial.run(load(20))
    board = trial.link.board
    assert not board.disabled
    assert board.fallback_steps == FAILURES_IN_A_ROW
    assert board.error_code == ErrorCode.NONE


def test_a_policy_that_loses_count_starts_afresh():
    class Forgetful(Policy):
        def discard(self, request):
            raise KeyError(request)

    trial = Trial(False, PolicyDocument("FCFS"))
    trial.force(Forgetful)
    trial.run(load(20))
    assert trial.link.board.error_code == ErrorCode.RAISED
    assert 0 < trial.link.board.fallback_steps < trial.engine.steps
