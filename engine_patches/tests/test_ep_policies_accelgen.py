"""AccelGen: who is next, who is limited or preempted, and that everybody is served whatever happens."""

import pytest
from ep_engine_view import LIMITS, FakeRequest, FakeView
from ep_pure_engine import PureEngine, PureRequest, serve_to_the_end
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_engine.cost.forms import Linear
from headrace_engine.cost.model import Profile
from headrace_engine.policies import accelgen
from headrace_engine.policies.accelgen.order import PLACED_PER_STEP, TURN, UrgencyOrder
from headrace_engine.policies.accelgen.running_limits import SHARE
from headrace_engine.policies.accelgen.step_estimate import StepEstimate
from headrace_engine.policies.engine_view import EngineLimits, Targets
from headrace_engine.policies.slo_budget import slo_budget
from headrace_engine.policies.step_budget import engine_budget, fixed_budget

COST = Linear(Profile("m", "g", 1, "e", "made up"), 0.01, 4e-5, 1e-9, 5e-6, 3e-8)
TTFT = Targets(ttft=1.0, tpot=0.05)


def waits(name, tokens, arrival=0.0, output=0):
    return FakeRequest(name, arrival, tokens, num_output_tokens=output, max_tokens=100)


def planned(view, budget=None, gamma=750, **methods):
    """The policy, its plan, and who would be admitted if all had room."""
    policy = accelgen.compose(
        accelgen.Params(gamma), view.limits, budget or fixed_budget(1000), accelgen.Methods(**methods)
    )
    for request in view.waiting:
        policy.add(request)
    plan = policy.plan(view)
    return policy, plan, [request.request_id for request in plan.admitted]


def test_equally_urgent_are_served_shortest_first_and_the_hopeless_last():
    view = FakeView(now=0.9, default_targets=TTFT)
    view.waiting = [waits("hopeless", 5, -0.2), waits("long", 900, 0.3), waits("short", 90, 0.4)]
    assert planned(view)[2] == ["short", "long", "hopeless"]


def test_those_beyond_gamma_come_after_the_urgent():
    view = FakeView(default_targets=TTFT, waiting=[waits("batch", 10), waits("chat", 500)])
    view.targets_of["batch"] = Targets(ttft=60.0)
    assert planned(view)[2] == ["chat", "batch"]
    assert planned(view, gamma=100_000)[2] == ["batch", "chat"]


def test_requests_without_targets_come_after_those_that_have_some():
    view = FakeView(waiting=[waits("any", 10), waits("other", 5), waits("chat", 500)])
    view.targets_of["chat"] = TTFT
    assert planned(view)[2] == ["chat", "other", "any"]


def test_selections_and_order_of_arrival():
    view = FakeView(default_targets=TTFT)
    view.waiting = [waits("a", 50, 0.0), waits("b", 700, -0.2), waits("c", 20, -0.1)]
    assert planned(view, selection="Shortest")[2] == ["c", "a", "b"]
    assert planned(view, selection="NearestFit")[2] == ["b", "a", "c"]
    assert planned(view, selection="MostUrgent")[2] == ["b", "c", "a"]
    assert planned(view, ordering=False)[2] == ["a", "b", "c"]


def test_a_step_looks_at_a_bounded_number_of_requests_however_many_join_or_are_late_at_once():
    view = FakeView(default_targets=TTFT)
    view.waiting = [waits(str(place), 900 - place) for place in range(500)]
    policy = accelgen.compose(accelgen.Params(), view.limits, fixed_budget(1000))
    for request in view.waiting:
        policy.add(request)

    def look():
        view.targets_asked = 0
        ranked = list(policy.plan(view).admitted)
        assert sorted(map(id, ranked)) == sorted(map(id, view.waiting))
        return ranked

    assert look()[-50:] == view.waiting[-50:]  # as they joined
    assert 0 < view.targets_asked <= 3 * PLACED_PER_STEP
    while view.targets_asked:
        ranked = look()
        assert view.targets_asked <= 3 * PLACED_PER_STEP
    assert ranked == list(reversed(view.waiting))
    view.now = 2.0  # all are late
    hopeless = [policy.gauges()[1]]
    while hopeless[-1] < len(view.waiting):
        look()
        hopeless.append(policy.gauges()[1])
        assert hopeless[-2] < hopeless[-1] <= hopeless[-2] + 3 * PLACED_PER_STEP
    assert look() == list(reversed(view.waiting))


def test_a_e2e_target_leaves_less_time_the_longer_the_prediction():
    view = FakeView(cost=COST, now=50.0, default_targets=Targets(e2e=60.0))
    view.waiting = [waits("brief", 100, 49.0), waits("lengthy", 100, 49.0)]
    view.outputs = {"brief": 10, "lengthy": 500}
    policy, _, _ = planned(view, selection="MostUrgent")
    policy.order._steps.deadlines.step = 0.1
    brief, lengthy = (policy.order.latest_start(request, 100, view) for request in view.waiting)
    assert brief - lengthy == pytest.approx(49.0)


def test_who_lost_its_kv_amid_its_output_comes_first():
    view = FakeView(default_targets=TTFT, waiting=[waits("new", 10), waits("resumed", 400, output=50)])
    assert planned(view)[2] == ["resumed", "new"]


def test_those_that_fit_pass_one_that_does_not_until_it_is_overdue():
    view = FakeView(default_targets=TTFT, free_blocks=10, running=[waits("r", 16)])
    view.waiting = [waits("small", 100), waits("big", 400), waits("middle", 150)]
    assert planned(view, selection="MostUrgent")[2] == ["small", "middle"]
    order = accelgen.compose(accelgen.Params(patience=100), LIMITS, engine_budget).order
    for request in view.waiting:
        order.add(request)
    list(order.ranked(view))
    for number in range(100):
        passing = waits(str(number), 100)
        order.add(passing)
        order.discard(passing)
    assert [each.request_id for each in order.admit(order.ranked(view), view)] == ["small"]


def test_short_prompts_go_ahead_of_a_running_long_one_which_takes_the_remainder():
    long = FakeRequest("long", 0.0, 8000, num_computed_tokens=1000)
    view = FakeView(now=0.1, default_targets=Targets(ttft=100.0), running=[long])
    view.waiting = [waits("a", 200, 0.1), waits("b", 300, 0.1), waits("c", 9000, 0.1)]
    _, plan, _ = planned(view)
    assert plan.running_limits.chunk_caps == {long: 500}
    view.waiting = [waits(str(number), 100, 0.1) for number in range(50)]
    _, plan, _ = planned(view)
    assert plan.running_limits.chunk_caps[long] >= 1000 // SHARE
    _, plan, _ = planned(view, exclusive=False)
    assert plan.running_limits.chunk_caps == {long: 1000}


def test_a_running_prefill_leaves_decodes_their_tokens_though_nobody_waits():
    """Those that passed it come behind it in the engine's order, and would get what it leaves."""
    long = FakeRequest("long", 0.0, 8000, num_computed_tokens=1000)
    decodes = [
        FakeRequest(str(n), 0.0, 100, num_computed_tokens=99, num_output_tokens=5, max_tokens=20)
        for n in "ab"
    ]
    view = FakeView(now=0.1, default_targets=Targets(ttft=100.0), running=[long, *decodes])
    _, plan, _ = planned(view)
    assert plan.running_limits.chunk_caps == {long: plan.step_tokens - 2}


def test_an_urgent_request_takes_the_kv_of_one_that_can_wait():
    relaxed = FakeRequest("relaxed", 0.0, 400, num_computed_tokens=399, num_output_tokens=5, max_tokens=20)
    pressed = FakeRequest("pressed", 0.0, 400, num_computed_tokens=399, num_output_tokens=5, max_tokens=20)
    view = FakeView(now=0.98, running=[relaxed, pressed], free_blocks=3, cost=COST)
    view.targets_of = {"relaxed": Targets(e2e=1000.0), "pressed": TTFT, "urgent": Targets(ttft=0.1)}
    view.waiting = [waits("urgent", 100, 0.97)]
    _, plan, _ = planned(view, slo_budget())
    assert list(plan.running_limits.preempted) == [relaxed]
    _, plan, _ = planned(view, slo_budget(), preemption="Never")
    assert not plan.running_limits.preempted
    view.targets_of["late"] = Targets(ttft=0.1)
    view.waiting.append(waits("late", 100, 0.0))
    _, plan, _ = planned(view, slo_budget())
    assert not plan.running_limits.preempted  # there is more work than time
    _, plan, _ = planned(view, slo_budget(), preemption="Always")
    assert list(plan.running_limits.preempted) == [relaxed]
    view.waiting.pop()
    view.free_blocks = 100
    _, plan, _ = planned(view, slo_budget())
    assert not plan.running_limits.preempted


def test_when_kv_is_scarce_who_can_wait_longest_is_last_in_line():
    running = [decoding("relaxed"), decoding("pressed")]
    view = FakeView(running=running, free_blocks=0, cost=COST)
    view.targets_of = {"relaxed": Targets(e2e=1000.0), "pressed": TTFT}
    _, plan, _ = planned(view, slo_budget())
    assert [request.request_id for request in plan.running_limits.running] == ["pressed", "relaxed"]


def decoding(name):
    return FakeRequest(name, 0.0, 400, num_computed_tokens=399, num_output_tokens=5, max_tokens=20)


def test_who_is_far_ahead_skips_a_step_that_others_wait_for():
    view = FakeView(running=[decoding("relaxed"), decoding("pressed")], cost=COST, waiting=[waits("w", 500)])
    view.targets_of = {"relaxed": Targets(tpot=2.0), "pressed": Targets(tpot=0.03), "w": TTFT}
    _, plan, _ = planned(view, slo_budget(), skipping=True)
    assert [request.request_id for request in plan.running_limits.skipped] == ["relaxed"]
    for waiting in ([], [waits("w", 20)]):  # nobody needs the step's last tokens
        view.waiting = waiting
        assert not planned(view, slo_budget(), skipping=True)[1].running_limits.skipped


def test_inner_state_is_shown():
    view = FakeView(now=0.9, default_targets=TTFT, waiting=[waits("late", 5, -0.2), waits("a", 9, 0.3)])
    policy, _, _ = planned(view)
    assert policy.gauges is not None
    assert dict(zip(accelgen.GAUGES, policy.gauges(), strict=True)) == {
        "in_time": 1,
        "hopeless": 1,
        "limit_ms": 0,
        "preempted": 0,
    }


targets = st.builds(
    Targets,
    ttft=st.none() | st.sampled_from([0.001, 0.3, 2.0]),
    tpot=st.none() | st.sampled_from([0.001, 0.04, 0.5]),
    e2e=st.none() | st.sampled_from([0.01, 3.0, 60.0]),
)
requests = st.tuples(
    st.integers(1, 600),  # prompt
    st.integers(1, 60),  # output
    st.floats(0.1, 10.0),  # predicted / output
    targets,
    st.booleans(),  # aborted
)
parameters = st.builds(
    accelgen.Params,
    gamma=st.sampled_from([0, 750, 100_000]),
    patience=st.sampled_from([0, 100, 200]),
)
methods = st.builds(
    accelgen.Methods,
    selection=st.sampled_from(["Shortest", "NearestFit", "MostUrgent"]),
    ordering=st.booleans(),
    exclusive=st.booleans(),
    preemption=st.sampled_from(["UnlessLate", "Always", "Never"]),
    skipping=st.booleans(),
)


@settings(max_examples=15)
@given(
    st.lists(requests, min_size=1, max_size=25),
    st.tuples(parameters, methods),
    st.integers(0, 100),
    st.tuples(st.sampled_from([64, 512]), st.booleans(), st.booleans()),
)
def test_everybody_is_served_whatever_targets_predictions_and_aborts(wanted, chosen, spare_blocks, engine_is):
    """KV may be as small as the largest request, and steps smaller than a prompt."""
    params, how = chosen
    most, known, slo = engine_is
    largest = max(-(-(prompt + output) // 16) for prompt, output, *_ in wanted)
    limits = EngineLimits(16, 1, largest + spare_blocks, most, 8)
    engine = PureEngine(
        limits,
        lambda: accelgen.compose(params, limits, slo_budget() if slo else engine_budget, how),
        cost=COST if known else None,
    )
    served = []
    for number, (prompt, output, error, wants, aborted) in enumerate(wanted):
        name = str(number)
        request = PureRequest(name, engine.now, prompt, max_tokens=output)
        request.output, request.predicted = output, max(1.0, output * error)
        engine.targets_of[name] = wants
        if engine.send(request, aborted=aborted):
            served.append(request)
    serve_to_the_end(engine, served, 6000)


def test_a_long_prompt_among_endless_short_ones_is_served():
    limits = EngineLimits(16, 1, 2000, 512, 16)
    engine = PureEngine(limits, lambda: accelgen.compose(accelgen.Params(), limits, slo_budget()), cost=COST)
    long = PureRequest("long", 0.0, 4000, max_tokens=5)
    long.output = 5
    engine.add(long)
    number = 0
    while long.finished_at is None and engine.steps < 3000:
        while len(engine.queue) < 12:
            number += 1
            short = PureRequest(str(number), engine.now, 200, max_tokens=3)
            short.output = 3
            engine.targets_of[str(number)] = TTFT
            engine.add(short)
        engine.step()
    assert long.finished_at is not None


def hopeless_and_overdue():
    """Steps, an order, and a view with a request that is late and was overtaken by much, and one in time."""
    late, soon = waits("late", 400, -5.0), waits("soon", 10, 30.0)
    view = FakeView(now=10.0, default_targets=TTFT, waiting=[late, soon])
    steps = StepEstimate(engine_budget, skipping=False)
    order = UrgencyOrder(0.75, "Shortest", 100, LIMITS, steps, ordering=True)
    order.add(late)
    for number in range(50):  # all of this overtakes it
        order.add(other := waits(f"other {number}", 400, 0.0))
        order.discard(other)
    order.add(soon)
    return steps, order, view


def led(steps, order, view, count):
    """Whether the first of the view's waiting requests was the first of all, in each of the next steps."""
    found = []
    for _ in range(count):
        steps(view)
        found.append(next(order.ranked(view)) is view.waiting[0])
    return found


def test_hopeless_requests_that_are_overdue_lead_in_one_step_of_some_and_until_one_starts():
    steps, order, view = hopeless_and_overdue()
    late, soon = view.waiting
    found = led(steps, order, view, 3 * TURN)
    assert found == [False] * (TURN - 1) + [True] * (2 * TURN + 1)  # it has not started yet
    late.num_computed_tokens = 400
    order.discard(late)
    order.add(again := waits("again", 400, -5.0))
    view.waiting = [again, soon]
    steps(view)
    assert next(order.ranked(view)) is soon


def test_hopeless_requests_have_their_turn_though_others_leave_unserved_or_the_cache_changes():
    steps, order, view = hopeless_and_overdue()
    found = []
    for number in range(2 * TURN):
        view.cached["late"] = 16 * (number % 2)
        order.add(given_up := waits(f"given up {number}", 300, -5.0))
        found += led(steps, order, view, 1)
        order.discard(given_up)
    assert found == [False] * (TURN - 1) + [True] * (TURN + 1)
