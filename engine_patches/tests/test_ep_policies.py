"""Policies against their definitions: LARRY's order against a plain sort, admission against free blocks."""

import dataclasses
from fractions import Fraction

import pytest
from ep_engine_view import LIMITS, FakeRequest, FakeView
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.contracts import PolicyDocument, StepBudget
from headrace_engine.policies import larry, registry
from headrace_engine.policies.admission import prompt_fits
from headrace_engine.policies.composition import Policy
from headrace_engine.policies.larry import LoadAdaptiveOrder
from headrace_engine.policies.plan import NO_LIMITS
from headrace_engine.policies.step_budget import fixed_budget

# Sixteenths of a second and small weights keep scores exact, so that ties are ties on both sides.
requests = st.lists(
    st.builds(
        lambda sixteenths, tokens: FakeRequest("r", sixteenths / 16, tokens),
        st.integers(0, 1600),
        st.integers(1, 4000),
    ),
    max_size=60,
)
alphas = st.sampled_from([0, 1, 10, 1000, 100_000])


def by_score(waiting, alpha, now=Fraction(10_000)):
    """Section 4.1 to the letter: score = alpha * wait - |queue| * prompt KV, highest first."""

    def score(request):
        wait = now - Fraction(request.arrival_time)
        return alpha * wait - len(waiting) * LIMITS.blocks(request.num_tokens)

    return sorted(waiting, key=lambda request: (-score(request), request.arrival_time))


def ordered(waiting, alpha, patience=0):
    order = LoadAdaptiveOrder(alpha, patience, LIMITS)
    for request in waiting:
        order.add(request)
    return order


@given(requests, alphas)
def test_larry_is_a_sort_by_score(waiting, alpha):
    ranked = list(ordered(waiting, alpha).ranked(FakeView(waiting)))
    assert ranked == by_score(waiting, alpha)


@given(requests, alphas, st.data())
def test_larry_follows_a_changing_queue(waiting, alpha, data):
    order = ordered(waiting, alpha)
    gone = data.draw(st.lists(st.sampled_from(waiting), unique=True) if waiting else st.just([]))
    for request in gone:
        order.discard(request)
    for request in gone[::2]:
        order.add(request)
    left = [r for r in waiting if r not in gone] + gone[::2]
    assert list(order.ranked(FakeView(left))) == by_score(left, alpha)


@given(st.lists(st.integers(1, 200), min_size=1, max_size=50))
def test_larry_with_a_large_alpha_is_fcfs(sizes):
    waiting = [FakeRequest("r", float(second), size) for second, size in enumerate(sizes)]
    assert list(ordered(waiting, 100_000).ranked(FakeView(waiting))) == waiting


def test_larry_ranks_no_more_than_is_asked_for():
    waiting = [FakeRequest("r", float(i), 16 * (1 + i % 500)) for i in range(5000)]
    order = ordered(waiting, 10)
    looked_at = 0

    class Counting(dict):
        def __getitem__(self, key):
            nonlocal looked_at
            looked_at += 1
            return super().__getitem__(key)

    order._by_size = Counting(order._by_size)
    next(order.ranked(FakeView(waiting)))
    assert 0 < looked_at < 30


@given(requests, st.integers(0, 600), st.integers(0, 300), st.booleans())
def test_admitted_prefix_fits(waiting, free, promised, busy):
    view = FakeView(list(waiting), [FakeRequest("running", 0, 16)] if busy else [], free, promised)
    policy = registry.build_policy(PolicyDocument("LARRY"), LIMITS)
    for request in waiting:
        policy.add(request)
    admitted = []
    for request in policy.plan(view).admitted:
        admitted.append(request)
        view.admit(request)
    best = by_score(waiting, larry.Params().alpha)  # nobody is overdue before anyone has left
    assert admitted == best[: len(admitted)]
    needs = [LIMITS.blocks(request.num_tokens) for request in best]
    charged = sum(needs[: len(admitted)])
    first_is_free = not busy and len(admitted) == 1
    assert charged <= max(free - promised, 0) or first_is_free or not admitted
    if len(admitted) < len(best):
        assert view.running
        assert charged + needs[len(admitted)] > free - promised


def test_preempted_request_is_charged_for_its_output():
    fresh, preempted = FakeRequest("fresh", 1.0, 100), FakeRequest("preempted", 0.0, 90)
    order = ordered([preempted, fresh], 0)
    assert next(iter(order.ranked(FakeView()))) is preempted
    order.discard(preempted)
    preempted.num_tokens = 300  # it has generated since
    order.add(preempted)
    assert next(iter(order.ranked(FakeView()))) is fresh


def test_fcfs_leaves_everything_to_the_engine():
    plan = registry.build_policy(PolicyDocument("FCFS"), LIMITS).plan(FakeView([FakeRequest("a", 0, 10)]))
    assert plan.admitted is None
    assert plan.step_tokens == LIMITS.max_step_tokens


@pytest.mark.parametrize("policy", registry.policy_names())
@pytest.mark.parametrize(
    ("tokens", "running", "expected"),
    [(512, 10, 512), (1_000_000, 10, LIMITS.max_step_tokens), (4, 10, 10)],
    ids=["as given", "clamped to the engine's", "a token for each running request"],
)
def test_fixed_step_budget(policy, tokens, running, expected):
    document = PolicyDocument(policy, step_budget=StepBudget("Fixed", tokens))
    view = FakeView(running=[FakeRequest(str(i), 0, 16) for i in range(running)])
    assert registry.build_policy(document, LIMITS).plan(view).step_tokens == expected


def test_fixed_step_budget_keeps_to_the_least_that_the_engine_can_work_with():
    document = PolicyDocument("FCFS", step_budget=StepBudget("Fixed", 4))
    limits = dataclasses.replace(LIMITS, min_step_tokens=600)
    assert registry.build_policy(document, limits).plan(FakeView(limits=limits)).step_tokens == 600


def test_only_a_policy_without_parts_decides_nothing():
    assert Policy().decides_nothing
    parts = {
        "order": LoadAdaptiveOrder(10, 0, LIMITS),
        "admission": prompt_fits,
        "step_budget": fixed_budget(512),
        "limiter": lambda _: NO_LIMITS,
    }
    for name, part in parts.items():
        assert not Policy(**{name: part}).decides_nothing
    assert not type("Own", (Policy,), {"plan": lambda *_: None})().decides_nothing
