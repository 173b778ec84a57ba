"""DoublingBudget: who is next, who makes room for whom, and that everybody is served whatever happens."""

import pytest
from ep_engine_view import LIMITS, FakeRequest, FakeView
from ep_pure_engine import PureEngine, PureRequest, serve_among_short_ones, serve_to_the_end
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_engine.cost.forms import Linear
from headrace_engine.cost.model import Profile
from headrace_engine.policies import doubling_budget
from headrace_engine.policies.doubling_budget.budgets import FORGOTTEN_LATE, Budgets
from headrace_engine.policies.doubling_budget.execution_times import LEAST_FINISHED
from headrace_engine.policies.doubling_budget.preemption import AGAIN
from headrace_engine.policies.engine_view import EngineLimits
from headrace_engine.policies.step_budget import engine_budget

COST = Linear(Profile("m", "g", 1, "e", "made up"), 0.01, 4e-5, 1e-9, 5e-6, 3e-8)
PATIENT = 1_000_000  # percent


def waits(name, tokens=100, arrival=0.0):
    return FakeRequest(name, arrival, tokens, max_tokens=100)


class Life:
    """A policy on an engine without room for more than what is started; `step` plans one at a time."""

    def __init__(self, starvation=200, **methods):
        self.view = FakeView(free_blocks=0, cost=COST)
        self.policy = doubling_budget.compose(
            doubling_budget.Params(starvation), LIMITS, engine_budget, doubling_budget.Methods(**methods)
        )

    def learn(self, *seconds):
        """Let requests run to their ends, one by one, for so long."""
        for each in seconds:
            request = self.start(waits("learned"))
            self.step(each)
            self.policy.record_finished(request, 1.0)
            self.view.running.remove(request)
        self.step()

    def start(self, request):
        """Take it from the queue, where it joins now unless it waits already."""
        if request not in self.view.waiting:
            self.join(request)
        self.view.waiting.remove(request)
        self.view.running.append(request)
        self.policy.discard(request)
        request.num_computed_tokens = request.num_tokens - 1
        self.step()
        return request

    def join(self, request):
        self.view.waiting.append(request)
        self.policy.add(request)
        return request

    def preempt(self, request):
        self.view.running.remove(request)
        request.num_preemptions += 1
        request.num_computed_tokens = 0
        return self.join(request)

    def step(self, seconds=0.0):
        """Plan a step now, another so many seconds later, and return the latter's."""
        self.policy.plan(self.view)
        self.view.now += seconds
        return self.policy.plan(self.view)

    def order(self):
        return [request.request_id for request in self.policy.order.ranked(self.view)]

    def gauges(self):
        return dict(zip(doubling_budget.GAUGES, self.policy.gauges(), strict=True))

    def victims(self):
        return [request.request_id for request in self.step().running_limits.preempted]


def learned(*seconds, **params):
    """A life that knows execution times: without others, 15 of one second and one of 17, budget 5.87 s."""
    life = Life(**params)
    life.learn(*(seconds or (*[1.0] * 15, 17.0)))
    return life


def test_the_budget_is_mean_plus_deviation_once_enough_have_finished():
    life = Life()
    life.learn(*[1.0] * (LEAST_FINISHED - 1))
    assert life.gauges()["budget_ms"] == 0
    life.learn(17.0)
    assert life.gauges()["budget_ms"] == pytest.approx(2000 + 1000 * 15**0.5)


def test_a_budget_that_is_used_up_is_doubled_again_and_again():
    life = learned(*[1.0] * 16)
    life.start(waits("a"))
    doubled = []
    for seconds in (0.9, 0.2, 1.8, 0.2, 3.8, 0.2):
        life.step(seconds)
        doubled.append(life.gauges()["doubled"])
    assert doubled == [0, 1, 1, 2, 2, 3]  # at 1, 3 and 7 seconds


def test_time_counts_only_while_a_request_runs():
    life = learned(*[1.0] * 16)
    request = life.start(waits("a"))
    life.step(0.6)
    life.preempt(request)
    life.step(50.0)
    life.start(request)
    life.step(0.3)
    assert life.gauges()["doubled"] == 0
    life.step(0.2)
    assert life.gauges()["doubled"] == 1


def test_a_clock_that_is_set_back_adds_nothing():
    life = learned(*[1.0] * 16)
    life.start(waits("a"))
    life.step(-50.0)
    life.step(50.9)
    assert life.gauges()["doubled"] == 0
    life.step(0.2)
    assert life.gauges()["doubled"] == 1


def test_who_has_less_left_is_first_and_equals_are_served_by_arrival():
    life = learned(starvation=PATIENT)
    long, brief = life.start(waits("long")), life.start(waits("brief"))
    life.step(6.0)  # both have used up 5.87 s, and got 11.75 s
    life.view.running.remove(brief)
    life.policy.record_finished(brief, 1.0)
    begun = life.start(waits("begun"))
    life.step(2.0)
    life.preempt(long)
    life.join(waits("second", arrival=2.0))
    life.join(waits("first", arrival=1.0))
    life.preempt(begun)
    assert life.order() == ["begun", "first", "second", "long"]


def test_who_starves_is_first_and_preempts_nobody():
    life = learned(starvation=100)
    life.start(waits("running", tokens=8000))
    life.step(100.0)
    life.join(waits("starved", tokens=8000))
    life.step(6.0)
    life.join(waits("fresh", arrival=-1.0))
    assert life.order() == ["starved", "fresh"]
    assert life.victims() == []


def contested(wait):
    """A life in which a request runs that has waited for so long, and one waits that has less left."""
    life = learned(*[1.0] * 15, 400.0, starvation=100)  # a budget of 122 s
    long = life.join(waits("long", tokens=8000))
    life.step(wait)
    begun = life.start(waits("begun"))
    life.step(100.0)
    life.start(long)
    life.preempt(begun)
    return life


def test_who_has_starved_is_left_alone_until_its_budget_is_used_up():
    assert contested(wait=10.0).victims() == ["long"]
    starved = contested(wait=100.0)
    assert starved.victims() == []
    starved.step(123.0)
    assert starved.gauges()["doubled"] == 1
    starved.policy.order.discard(starved.view.waiting.pop())
    starved.join(waits("fresh"))
    assert starved.victims() == ["long"]


def test_who_has_less_left_is_not_preempted_for_who_has_more():
    life = contested(wait=10.0)
    [long] = life.view.running
    life.step(110.0)
    life.join(waits("fresh"))
    life.policy.order.discard(life.view.waiting.pop(0))
    assert life.victims() == []
    assert long in life.view.running


def test_starvation_at_once_is_order_of_joining_and_nobody_is_preempted():
    life = learned(starvation=0)
    life.start(waits("running", tokens=8000))
    life.step(100.0)
    for name, arrival in (("a", 3.0), ("b", 2.0)):
        life.join(waits(name, arrival=arrival))
        life.step(0.1)
    assert life.order() == ["a", "b"]
    assert life.victims() == []


def overdrawn(**methods):
    """A life in which a long request has used up its budget, a new one runs, and one waits without room."""
    life = learned(**methods)
    life.start(waits("long", tokens=8000))
    life.step(100.0)
    life.start(waits("new", tokens=8000))
    life.join(waits("waiting"))
    return life


def test_who_has_used_up_its_budget_makes_room_for_who_has_not():
    life = overdrawn()
    assert life.victims() == ["long"]
    assert life.gauges()["preempted"] >= 1


def test_nobody_is_preempted_where_there_is_room_or_costs_are_not_known_or_it_would_not_be_enough():
    life = overdrawn()
    life.view.free_blocks = 7
    assert life.victims() == []
    life.view.promised_blocks = 1
    assert life.victims() == ["long"]
    life.view.promised_blocks = 0
    life.view.free_blocks, life.view.cost = 0, None
    assert life.victims() == []
    life.view.cost, life.view.waiting[0].num_tokens = COST, 9000
    assert life.victims() == []
    life.view.free_blocks = 62
    assert life.victims() == []  # 63 are missing beside the victim's 500
    life.view.free_blocks = 63
    assert life.victims() == ["long"]


def test_a_taken_slot_is_a_lack_of_room():
    life = overdrawn()
    life.view.free_blocks = 500
    assert life.victims() == []
    life.view.running += [waits(str(number)) for number in range(LIMITS.max_running)]
    assert life.victims() == ["long"]


def test_nobody_is_preempted_a_third_time():
    life = overdrawn()
    life.view.running[0].num_preemptions = AGAIN
    assert life.victims() == []
    life.view.running[0].num_preemptions = AGAIN - 1
    assert life.victims() == ["long"]


def test_who_is_about_to_end_as_all_others_did_is_not_preempted():
    """Of light tails: what others ran longer for says that little is left, whatever the budget."""
    life = learned(*[10.0] * 15, 11.0)
    life.start(waits("nearly done", tokens=8000))
    life.step(10.6)
    life.join(waits("waiting"))
    assert life.gauges()["doubled"] == 1
    assert life.victims() == []


def test_preemption_always_asks_only_what_is_left():
    life = learned(*[10.0] * 15, 11.0, preemption="Always")
    life.start(waits("nearly done", tokens=8000))
    life.step(10.6)
    life.join(waits("waiting"))
    assert life.victims() == ["nearly done"]
    assert overdrawn(preemption="Never").victims() == []


def test_the_same_phase_keeps_decodes_out_of_steps_with_prompts():
    life = Life(same_phase=True)
    decode = life.start(waits("decode"))
    assert life.step().running_limits.skipped == ()
    life.join(waits("prompt"))
    assert life.step().running_limits.skipped == ()  # it has no room
    life.view.free_blocks = 500
    assert list(life.step().running_limits.skipped) == [decode]
    prompt = life.view.waiting[0]
    life.start(prompt)
    prompt.num_computed_tokens = 10
    assert list(life.step().running_limits.skipped) == [decode]


def test_aborted_requests_are_forgotten():
    view, budgets = FakeView(), Budgets()
    for number in range(1000):
        budgets.start(waits(str(number)), starved=False)
        budgets.forget_aborted(view.running, view.holding)
        assert sum(1 for _ in budgets.most_left()) <= FORGOTTEN_LATE + 1


requests = st.tuples(
    st.integers(1, 600),  # prompt
    st.one_of(st.integers(1, 10), st.integers(1, 400)),  # output
    st.booleans(),  # aborted
)
methods = st.builds(
    doubling_budget.Methods,
    preemption=st.sampled_from(["WhereItPays", "Always", "Never"]),
    same_phase=st.booleans(),
)


@settings(max_examples=25)
@given(
    st.lists(requests, min_size=1, max_size=60),
    st.tuples(st.sampled_from([0, 50, 200, PATIENT]), methods),
    st.integers(0, 60),
    st.tuples(st.sampled_from([64, 512]), st.booleans()),
)
def test_everybody_is_served_whatever_lengths_and_aborts(wanted, chosen, spare_blocks, engine_is):
    """KV may be as small as the largest request, and steps smaller than a prompt."""
    (starvation, how), (most, known) = chosen, engine_is
    largest = max(-(-(prompt + output) // 16) for prompt, output, _ in wanted)
    limits = EngineLimits(16, 1, largest + spare_blocks, most, 8)
    params = doubling_budget.Params(starvation)
    engine = PureEngine(
        limits,
        lambda: doubling_budget.compose(params, limits, engine_budget, how),
        cost=COST if known else None,
    )
    served = []
    for number, (prompt, output, aborted) in enumerate(wanted):
        request = PureRequest(str(number), engine.now, prompt, max_tokens=output)
        request.output = output
        if engine.send(request, aborted=aborted):
            served.append(request)
    serve_to_the_end(engine, served)


def test_a_long_request_among_endless_short_ones_is_served():
    limits = EngineLimits(16, 1, 100, 512, 4)
    params = doubling_budget.Params()
    engine = PureEngine(limits, lambda: doubling_budget.compose(params, limits, engine_budget), cost=COST)
    long = serve_among_short_ones(engine, short_output=5)
    assert long.finished_at is not None
