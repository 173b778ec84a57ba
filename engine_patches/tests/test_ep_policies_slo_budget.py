"""The SLO step budget: what the tightest target of the running requests leaves time for."""

import random
from dataclasses import replace

import pytest
from ep_engine_view import LIMITS, FakeRequest, FakeView
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_engine.cost.composed import Axes, Composed
from headrace_engine.cost.forms import Linear
from headrace_engine.cost.model import Batch, Profile
from headrace_engine.policies.engine_view import Targets
from headrace_engine.policies.slo_budget import (
    CLOSE,
    FIRST,
    FLOOR,
    SATURATED,
    find_most_tokens,
    find_pivot,
    slo_budget,
)
from headrace_engine.policies.step_budget import fixed_budget
from headrace_engine.policies.token_deadlines import AIM, IN_TURN

ME = Profile("m", "g", 1, "e", "made up")
COST = Linear(ME, 0.01, 4e-5, 1e-9, 5e-6, 3e-8)  # 50 ms for about 1,000 tokens


def decode(name, context=500, output=1, arrival=0.0):
    return FakeRequest(
        name, arrival, context, num_computed_tokens=context - 1, num_output_tokens=output, max_tokens=1000
    )


def step(view, seconds):
    """All decodes get a token."""
    view.now += seconds
    for request in view.running:
        request.num_tokens += 1
        request.num_computed_tokens += 1
        request.num_output_tokens += 1


def seconds_of(tokens, view):
    decodes, context = len(view.running), sum(request.num_tokens for request in view.running)
    prefill = tokens - decodes
    return COST.step_seconds(Batch(prefill, 0.0, decodes, context))


@settings(max_examples=50)
@given(
    st.floats(0, 0.2), st.floats(1e-6, 1e-3), st.floats(0, 1e-7), st.integers(0, 300), st.integers(1, 20_000)
)
def test_inversion_finds_the_most_tokens_that_are_in_time(allowed, each, bend, low, span):
    def seconds(tokens):
        return 0.01 + each * tokens + bend * tokens**2

    tokens = find_most_tokens(seconds, allowed, low, low + span)
    assert low <= tokens <= low + span
    if tokens > low:
        assert seconds(tokens) <= allowed
    if seconds(low) < allowed and tokens < low + span:
        assert seconds(tokens + 1) >= allowed * (1 - 2 * CLOSE) or tokens >= 0.98 * low


def bent(flat, per_token):
    """Make a cost model that takes as long for few tokens as for 100, and then so much for each."""
    axes = Axes([1, 100, 10_100], [1, 2], [1, 2], [1, 2], [1, 2])
    dense = [flat, flat, flat + 10_000 * per_token]
    return Composed(ME, axes, dense, [0.0, 0.0], [0.0, 0.0], [[0.0, 0.0], [0.0, 0.0]])


def test_pivot_is_where_tokens_stop_getting_cheaper():
    cost = bent(0.008, 4e-5)
    pivot = find_pivot(cost, 8192, SATURATED)

    def rate(tokens):
        return tokens / cost.step_seconds(Batch(prefill_tokens=tokens))

    assert rate(pivot) >= SATURATED * rate(8192) > rate(pivot - 1)
    slower = bent(0.08, 4e-4)
    assert find_pivot(slower, 8192, SATURATED) == pytest.approx(pivot, abs=1)


def test_before_the_cost_is_known_steps_grow_from_few_tokens_within_the_target():
    budget, view = slo_budget(), FakeView(default_targets=Targets(tpot=0.05))
    assert budget(view) == LIMITS.max_step_tokens, "nobody is generating"
    view.running = [decode("a")]
    tokens = [budget(view)]
    assert tokens[0] == FIRST + 1
    for _ in range(5):
        seconds = seconds_of(tokens[-1], view)
        assert seconds <= 2 * 0.05  # what it has saved, it may spend
        view.token_at_most = min(seconds / (tokens[-1] - 1), view.token_at_most or 1.0)
        step(view, seconds)
        tokens.append(budget(view))
    assert tokens[-1] > 5 * FIRST
    view.token_at_most = 0.01  # a slow engine
    assert budget(view) <= FIRST


def test_as_kv_fills_steps_get_smaller_but_not_while_nobody_waits():
    """With a target that leaves time for more."""
    running = [decode(str(number)) for number in range(20)]
    view = FakeView(running=running, default_targets=Targets(tpot=10.0), cost=COST)
    most, pivot = slo_budget()(view), find_pivot(COST, LIMITS.max_step_tokens, SATURATED)
    assert most == LIMITS.max_step_tokens
    view.waiting = [FakeRequest("w", 0.0, 20_000)]
    tokens = []
    for view.free_blocks in (1000, 100, 20, 0):  # of 1,000
        tokens.append(slo_budget()(view))
    assert most == tokens[0] > tokens[1] > tokens[2] > tokens[3] == pivot // 2 + len(running)
    view.free_blocks, view.promised_blocks = 1000, 1000
    assert slo_budget()(view) == tokens[3]


def test_a_cached_beginning_makes_the_rest_of_a_prompt_dearer_by_its_attention():
    """A token of it attends to the beginning too."""
    tokens = []
    for cached in (0, 16_000):
        view = FakeView(running=[decode("a")], default_targets=Targets(tpot=0.05), cost=COST)
        view.waiting = [FakeRequest("w", 0.0, 20_000)]
        view.cached = {"w": cached}
        tokens.append(slo_budget()(view))
    work = (tokens[1] - 1) * 16_000
    assert tokens[0] - tokens[1] == pytest.approx(work * COST.per_work / COST.per_prefill, rel=0.25)


def test_before_the_cost_is_known_whole_prompts_go_where_they_can_not_be_split():
    whole = replace(LIMITS, min_step_tokens=LIMITS.max_step_tokens)
    view = FakeView(running=[decode("a")], default_targets=Targets(tpot=0.05), limits=whole)
    assert slo_budget()(view) == LIMITS.max_step_tokens


def test_a_fit_without_a_fixed_cost_does_not_make_steps_of_single_tokens():
    """Eight noisy prefills can look like that, and steps of one token would teach nothing else."""
    view = FakeView(running=[decode("a")], cost=Linear(ME, 0.0, 4e-5, 0.0, 5e-6, 0.0))
    assert slo_budget()(view) == FIRST + 1
    view.limits = replace(LIMITS, max_step_tokens=64)
    assert slo_budget()(view) == 64


def with_pictures(encoder_token, encoded, waiting=4):
    view = FakeView(
        running=[decode("a")], default_targets=Targets(tpot=0.05), cost=COST, encoder_token=encoder_token
    )
    view.waiting = [FakeRequest(str(number), 0.0, 1000) for number in range(waiting)]
    view.encoded = {str(number): encoded for number in range(waiting)}
    return view


def test_what_encoders_take_is_left_of_the_time_of_prompts():
    """Half of each prompt is a picture, whose tokens take as long to encode as to prefill."""
    plain, pictured = (slo_budget()(with_pictures(COST.per_prefill, encoded)) for encoded in (0, 500))
    assert pictured == pytest.approx(plain / 1.5, rel=0.03)
    assert slo_budget()(with_pictures(0.0, 500)) == plain  # before any was timed


@settings(max_examples=50)
@given(st.floats(0, 100), st.integers(0, 1_000_000), st.integers(0, 40))
def test_encoders_press_no_step_below_its_floor(encoder_token, encoded, waiting):
    plain, pictured = (slo_budget()(with_pictures(each, encoded, waiting)) for each in (0.0, encoder_token))
    assert find_pivot(COST, LIMITS.max_step_tokens, SATURATED) // FLOOR + 1 <= pictured <= plain


def test_without_targets_it_is_the_pivot_beside_the_decodes():
    view = FakeView(running=[decode(str(number)) for number in range(20)], cost=COST)
    assert slo_budget()(view) == find_pivot(COST, LIMITS.max_step_tokens, SATURATED) + 20


def test_drafts_of_decodes_take_nothing_from_prefills_and_nobody_goes_without():
    running = [decode(str(number)) for number in range(128)]
    plain = FakeView(running=running, cost=COST, default_targets=Targets(tpot=0.001))
    drafting = replace(plain, limits=replace(LIMITS, decode_tokens=4))
    assert slo_budget()(drafting) - 4 * 128 == slo_budget()(plain) - 128 > 0
    assert fixed_budget(64)(drafting) == 4 * 128


def test_tightest_tpot_decides_and_looser_ones_do_not():
    running = [decode(str(number)) for number in range(30)]
    view = FakeView(running=running, cost=COST, default_targets=Targets(tpot=0.2))
    loose = slo_budget()(view)
    view.targets_of["17"] = Targets(tpot=0.05)
    tight, budget = 0, slo_budget()
    for _ in range(1 + len(running) // IN_TURN):
        tight = budget(view)
    assert tight < loose
    assert AIM * 0.05 * 0.95 < seconds_of(tight, view) <= 0.05


def test_what_a_request_saved_may_be_spent_and_what_it_owes_is_paid_back():
    view = FakeView(running=[decode("a")], cost=COST, default_targets=Targets(tpot=0.05), outputs={"a": 12})
    budget = slo_budget()
    even = budget(view)
    step(view, 0.02)
    ahead = budget(view)
    assert ahead > even
    assert seconds_of(ahead, view) <= 0.05 + 0.03
    step(view, 0.1)  # now late
    behind = budget(view)
    assert behind < even


def test_mean_gap_stays_within_the_target_whatever_the_load():
    """A loop of full steps with costs that are a little off: nobody's mean gap exceeds the target."""
    rng = random.Random(7)
    view = FakeView(cost=COST, default_targets=Targets(tpot=0.05))
    budget, started, worst = slo_budget(), {}, 0.0
    for number in range(400):
        tokens = budget(view)
        if number % 3 == 0 and len(view.running) < 200:
            view.running.append(decode(str(number), context=rng.randrange(100, 3000)))
            started[str(number)] = None
        took = seconds_of(tokens, view) * rng.uniform(0.9, 1.05)
        step(view, took)
        for request in list(view.running):
            if started[request.request_id] is None:
                started[request.request_id] = (view.now, request.num_output_tokens)
            elif request.num_output_tokens > 40 and rng.random() < 0.05:
                since, had = started[request.request_id]
                worst = max(worst, (view.now - since) / (request.num_output_tokens - had))
                view.running.remove(request)
    assert 0.03 < worst <= 0.05


def test_never_do_all_skip_a_step_and_nobody_does_where_no_prompt_could_start():
    view = FakeView(running=[decode("a"), decode("b")], cost=COST, default_targets=Targets(tpot=0.05))
    view.waiting = [FakeRequest("long", 0.0, 100_000)]
    budget = slo_budget()
    budget.skipping = True
    budget(view)
    for _ in range(100):
        step(view, 0.001)
    budget(view)  # both are seconds ahead of their targets
    assert len(budget.skipped) == 1
    view.limits = replace(LIMITS, max_running=2)
    budget(view)
    assert not budget.skipped


def test_e2e_targets_share_the_time_left_among_the_tokens_left():
    view = FakeView(running=[decode("a")], cost=COST, outputs={"a": 101})
    view.targets_of["a"] = Targets(e2e=6.0)
    even = slo_budget()(view)
    assert seconds_of(even, view) == pytest.approx(0.06, rel=0.05)
    view.now = 1.0  # nothing came of a second: less for each of the others
    assert slo_budget()(view) < even


def test_who_cannot_be_in_time_any_more_presses_nobody():
    late = decode("late")
    view = FakeView(running=[late], cost=COST, outputs={"late": 500}, now=100.0)
    view.targets_of["late"] = Targets(e2e=101.0)
    assert slo_budget()(view) == find_pivot(COST, LIMITS.max_step_tokens, SATURATED) + 1


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(2, 4000), st.booleans(), st.booleans()), max_size=40),
    st.floats(0.0001, 1.0),
    st.lists(st.integers(0, 39), max_size=10),
)
def test_decodes_always_fit_and_prefills_go_on(running, tpot, leaving):
    """Whoever runs, joins or leaves: there is a token for each, and some for a prompt."""
    view = FakeView(cost=COST, default_targets=Targets(tpot=tpot))
    budget = slo_budget()
    for number, (tokens, decoding, runs_ahead) in enumerate(running):
        computed = tokens - (0 if runs_ahead else 1) if decoding else tokens // 2
        view.running.append(
            FakeRequest(str(number), 0.0, tokens, num_computed_tokens=computed, num_output_tokens=decoding)
        )
        if number in leaving:
            view.running.pop(number % len(view.running))
        tokens_now = budget(view)
        assert len(view.running) < tokens_now <= LIMITS.max_step_tokens
        assert tokens_now - budget.deadlines.decodes >= budget._pivot // FLOOR
        view.now += 0.01


def test_context_of_the_decodes_is_followed_as_requests_come_and_go():
    rng = random.Random(3)
    view, budget = FakeView(cost=COST), slo_budget()
    for number in range(200):
        for request in list(view.running):
            if rng.random() < 0.1:
                view.running.remove(request)
        for place in range(rng.choice([0, 1, 1, 2])):
            view.running.append(decode(f"{number} {place}", context=rng.randrange(2, 3000)))
        if number % 20 == 19:  # as when a plan says who is preempted last
            rng.shuffle(view.running)
        budget(view)
        assert budget.deadlines.decodes == len(view.running)
        assert budget.deadlines.context == sum(request.num_tokens for request in view.running)
        step(view, 0.02)


def test_who_lost_its_kv_still_owes_the_time_that_this_took():
    """Its stream stood still for half a second: the steps that follow are shorter, to make up for it."""

    def allowed(first_token):
        request = FakeRequest("r", 0.0, 400, num_computed_tokens=399, num_output_tokens=5, max_tokens=200)
        view = FakeView(now=10.0, running=[request], default_targets=Targets(tpot=0.05), cost=COST)
        if first_token is not None:
            view.first_tokens["r"] = (first_token, 1)
        budget = slo_budget()
        budget(view)
        return budget.deadlines.limit

    assert allowed(10.0 - 4 * 0.048 - 0.5) < allowed(10.0 - 4 * 0.048) == pytest.approx(0.048)
    assert allowed(None) == pytest.approx(0.048)  # nobody knows
