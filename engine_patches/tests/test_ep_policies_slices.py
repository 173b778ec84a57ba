"""Slices: who steps back for whom, in which order they come back, and that everybody is served."""

from math import log2

import pytest
from ep_engine_view import LIMITS, FakeRequest, FakeView
from ep_pure_engine import PureEngine, PureRequest, serve_among_short_ones, serve_to_the_end
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace_engine.contracts import ContractError, PolicyDocument, Slice
from headrace_engine.cost.forms import Linear
from headrace_engine.cost.model import Profile
from headrace_engine.policies import registry
from headrace_engine.policies.engine_view import EngineLimits
from headrace_engine.policies.plan import NO_LIMITS, RunningLimits
from headrace_engine.policies.slices import (
    FORGOTTEN_LATE,
    MOST,
    MOST_ANEW,
    SPARE,
    ArrivalOrder,
    SliceLimiter,
    SliceQueue,
)

COST = Linear(Profile("m", "g", 1, "e", "made up"), 0.01, 4e-5, 1e-9, 5e-6, 3e-8)
TOKENS, PATIENCE = 64, 10.0


class Life:
    """An engine of which all KV is taken, by requests of 10 blocks; `step` carries out who steps back."""

    def __init__(self):
        self.view = FakeView(free_blocks=0)
        self.policy = registry.build_policy(
            PolicyDocument("FCFS", slice=Slice(TOKENS, int(PATIENCE * 1000))), LIMITS
        )

    def join(self, name, tokens=160):
        request = FakeRequest(name, self.view.now, tokens)
        self.view.waiting.append(request)
        self.policy.add(request)
        return request

    def start(self, request):
        self.view.waiting.remove(request)
        self.view.running.append(request)
        self.policy.discard(request)
        return request

    def runs(self, name, produced=0, tokens=160):
        """Start a request that has had so much output since."""
        request = self.start(self.join(name, tokens - produced))
        request.num_tokens += produced
        request.num_output_tokens += produced
        return request

    def step(self):
        """Plan a step; return who stepped back, who are in the queue now."""
        victims = list(self.policy.plan(self.view).running_limits.preempted)
        for request in victims:
            self.preempt(request)
        return [request.request_id for request in victims]

    def preempt(self, request):
        self.view.running.remove(request)
        self.view.waiting.insert(0, request)
        request.num_preemptions += 1
        request.num_computed_tokens = 0
        self.policy.add(request)

    def order(self):
        return [request.request_id for request in self.policy.order.ranked(self.view)]


def test_who_has_used_up_a_slice_makes_room_for_who_has_none():
    life = Life()
    life.runs("done", produced=TOKENS)
    life.runs("amid", produced=TOKENS - 1)
    life.join("new")
    assert life.step() == ["done"]
    assert life.order() == ["new"]
    life.view.free_blocks = 500
    assert life.order() == ["new", "done"]
    assert life.policy.gauges() == (1,)


def test_nobody_steps_back_while_there_is_room_or_nobody_waits():
    life = Life()
    life.runs("done", produced=TOKENS)
    assert life.step() == []
    life.join("new")
    life.view.free_blocks = 10
    assert life.step() == []
    life.view.promised_blocks = 1
    assert life.step() == ["done"]


def test_a_slot_is_room_too():
    life = Life()
    life.view.free_blocks = 500
    life.view.limits = EngineLimits(16, 1, 1000, 2048, max_running=2)
    life.runs("done", produced=TOKENS)
    life.runs("amid")
    life.join("new")
    assert life.step() == ["done"]


def test_as_many_step_back_as_it_takes_and_nobody_if_they_are_not_enough():
    life = Life()
    for number in range(3):
        life.runs(str(number), produced=TOKENS + number)
    large = life.join("large", tokens=31 * 16)
    assert life.step() == []
    large.num_tokens = 20 * 16
    assert life.step() == ["2", "1"]  # who has had most goes first
    assert MOST >= 3


def test_who_has_had_most_slices_goes_first_and_of_equals_who_has_had_most_since_it_started():
    life = Life()
    life.runs("one", produced=3 * TOKENS - 1)
    life.runs("two", produced=3 * TOKENS)  # one slice and one of twice the length
    life.runs("long", produced=6 * TOKENS)
    for name in ("long", "two", "one"):
        new = life.join("for " + name)
        assert life.step() == [name]
        life.start(new)
    assert life.order() == []  # there is no room
    life.view.free_blocks = 100
    assert life.order() == ["one", "long", "two"]  # who has had fewer first, equals as they stepped back


def test_who_goes_on_runs_for_a_first_slice_at_least():
    life = Life()
    first = life.runs("first", produced=4 * TOKENS)
    new = life.join("new")
    assert life.step() == ["first"]
    life.start(new)
    life.start(first)
    first.num_output_tokens += TOKENS - 1
    life.join("third")
    assert life.step() == []
    first.num_output_tokens += 1
    assert life.step() == ["first"]


def test_who_would_have_too_much_to_compute_anew_does_not_step_back():
    life = Life()
    request = life.runs("long", produced=TOKENS, tokens=MOST_ANEW * TOKENS + 8)
    life.join("new")
    assert life.step() == []
    request.num_output_tokens += 2
    request.num_tokens += 2
    assert life.step() == ["long"]


def test_who_has_had_a_slice_goes_on_where_there_is_room_to_spare_and_takes_none_from_others():
    life = Life()
    life.runs("done", produced=TOKENS)
    new = life.join("new")
    assert life.step() == ["done"]
    life.start(new)
    new.num_output_tokens = 10 * TOKENS
    spare = int(SPARE * LIMITS.total_blocks)
    assert spare > 1
    life.view.free_blocks = 10 + spare - 1
    assert life.order() == []
    assert life.step() == []
    life.view.free_blocks = 10 + spare
    assert life.order() == ["done"]
    life.view.free_blocks = 10
    life.view.running.clear()
    assert life.order() == ["done"]  # no room will come by waiting


def test_a_request_that_lost_its_kv_otherwise_waits_as_if_it_had_stepped_back():
    life = Life()
    lost, fresh = life.runs("lost", produced=TOKENS), life.runs("fresh", produced=TOKENS - 1)
    life.step()
    life.join("new")
    life.preempt(lost)
    life.preempt(fresh)
    life.view.free_blocks = 500
    assert life.order() == ["fresh", "new", "lost"]  # who has had no slice is where vLLM has it
    assert life.policy.gauges() == (0,)


def test_who_was_told_to_step_back_but_could_not_is_not_counted():
    life = Life()
    request = life.runs("writes", produced=TOKENS)
    life.join("new")
    assert list(life.policy.plan(life.view).running_limits.preempted) == [request]
    life.view.free_blocks = 10
    assert life.step() == []
    life.preempt(request)  # for want of KV, later
    assert life.policy.gauges() == (0,)


def test_who_has_waited_too_long_goes_ahead_of_all_and_one_at_a_time():
    life = Life()
    for name in "ab":
        request = life.runs(name, produced=TOKENS)
        life.join("for " + name)
        life.step()
    fresh = [request for request in life.view.waiting if request.request_id.startswith("for")]
    for request in fresh:
        life.start(request)
    life.join("new")
    assert life.order() == ["new"]
    life.view.now += PATIENCE
    assert life.order() == ["a", "new"]
    fresh[0].num_output_tokens = TOKENS
    fresh[0].num_tokens = 160
    assert life.step() == ["for a"]
    assert life.order() == ["a", "new"]
    hurried = life.start(next(each for each in life.view.waiting if each.request_id == "a"))
    assert life.order() == ["new"]  # `b` is late as well
    hurried.num_output_tokens += TOKENS
    assert life.order() == ["b", "new"]
    life.view.running.remove(hurried)
    assert life.order() == ["b", "new"]


def test_requests_that_ran_before_the_policy_count_all_their_output():
    life = Life()
    request = FakeRequest("old", 0.0, 160, num_output_tokens=TOKENS)
    life.view.running.append(request)
    life.join("new")
    assert life.step() == ["old"]


def test_requests_that_waited_before_the_policy_have_waited_since_it_was_set():
    life = Life()
    life.view.now = 1_000_000.0
    life.runs("runs")
    old = FakeRequest("old", 0.0, 160, num_output_tokens=TOKENS)
    life.view.waiting.append(old)
    life.policy.add(old)
    life.step()
    assert life.order() == []
    life.view.now += PATIENCE
    assert life.order() == ["old"]


def test_a_policys_own_preemption_goes_before():
    life = Life()
    done, other = life.runs("done", produced=TOKENS), life.runs("other")
    life.join("new")
    queue = SliceQueue(ArrivalOrder(), TOKENS, PATIENCE)
    for request in life.view.waiting:
        queue.add(request)
    own = RunningLimits(preempted=[other], skipped=[done])
    assert SliceLimiter(lambda _: own, queue)(life.view) is own
    skipping = RunningLimits(skipped=[done, other], chunk_caps={other: 5})
    assert SliceLimiter(lambda _: skipping, queue)(life.view) == RunningLimits(
        preempted=[done], skipped=[other], chunk_caps={other: 5}
    )
    life.view.waiting.clear()
    assert SliceLimiter(lambda _: skipping, queue)(life.view) is skipping
    assert SliceLimiter(None, queue)(life.view) is NO_LIMITS


def test_requests_that_ended_are_forgotten():
    life = Life()
    for number in range(1000):
        request = life.runs(str(number), produced=TOKENS)
        life.join("new" + str(number))
        life.step()
        life.view.waiting.clear()
        life.policy.discard(request)
    queue = life.policy.order
    assert len(queue._began) <= FORGOTTEN_LATE + 4


def test_a_slice_below_the_engines_block_is_refused():
    document = PolicyDocument("FCFS", slice=Slice(32))
    registry.validate_document(document)
    limits = EngineLimits(block_size=64, kv_groups=1, total_blocks=9, max_step_tokens=64, max_running=2)
    with pytest.raises(ContractError, match=r"slice\.tokens: 32 is below the KV block of the engine, 64"):
        registry.build_policy(document, limits)


requests = st.tuples(
    st.integers(1, 600),  # prompt
    st.one_of(st.integers(1, 10), st.integers(1, 400)),  # output
    st.booleans(),  # aborted
)


@settings(max_examples=40)
@given(
    st.lists(requests, min_size=1, max_size=60),
    st.sampled_from(registry.policy_names()),
    st.tuples(st.sampled_from([16, 48, 200]), st.sampled_from([1, 500, 10_000])),
    st.tuples(st.integers(0, 60), st.sampled_from([64, 512]), st.booleans()),
)
@example([(1, 17, False), (1, 7, False)], "EconoServe", (16, 1), (0, 64, False))  # one steps back
def test_everybody_is_served_whatever_policy_lengths_and_aborts(wanted, policy, slices, engine_is):
    """KV may be as small as the largest request, steps smaller than a prompt, and a slice one block."""
    spare_blocks, most, known = engine_is
    largest = max(-(-(prompt + output) // 16) for prompt, output, _ in wanted)
    limits = EngineLimits(16, 1, largest + spare_blocks, most, 8)
    document = PolicyDocument(policy, slice=Slice(*slices))
    engine = PureEngine(limits, lambda: registry.build_policy(document, limits), cost=COST if known else None)
    served = []
    for number, (prompt, output, aborted) in enumerate(wanted):
        request = PureRequest(str(number), engine.now, prompt, max_tokens=output)
        request.output = request.predicted = output
        if engine.send(request, aborted=aborted):
            served.append(request)
    serve_to_the_end(engine, served)


def test_a_long_request_among_endless_short_ones_is_served_and_steps_back_a_few_times_only():
    limits = EngineLimits(16, 1, 100, 512, 4)
    document = PolicyDocument("FCFS", slice=Slice(16, 1000))
    engine = PureEngine(limits, lambda: registry.build_policy(document, limits), cost=COST)
    long = serve_among_short_ones(engine, short_output=20)
    assert long.finished_at is not None
    assert 1 <= long.num_preemptions <= log2(long.output / 16) + 1
