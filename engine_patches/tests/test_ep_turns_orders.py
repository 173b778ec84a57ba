"""With what priority a service asks for the turn."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.contracts.turn_group import TurnOrder
from headrace_engine.policies.doubling_budget.execution_times import LEAST_FINISHED
from headrace_engine.turns.orders import (
    MEMORY_SECONDS,
    ORDERS,
    SLICE_SECONDS,
    UNKNOWN_SECONDS,
    DoublingBudget,
    FairShare,
)


class Service:
    """One service's order, its clock and the counts of its requests."""

    def __init__(self, order, running=1, waiting=0):
        self.counts = [running, waiting]
        self.now = 1000.0
        self.order = order(lambda: tuple(self.counts))
        self._numbers = 0

    @property
    def value(self):
        return self.order.value()

    def compute(self, seconds):
        self.now += seconds
        self.order.compute(seconds, self.now)

    def rest(self, seconds):
        self.now += seconds

    def execute(self, seconds, *, unloaded=None, whole=True):
        """One request, alone."""
        name = f"request {self._numbers}"
        self._numbers += 1
        self.order.start(name)
        self.compute(seconds)
        self.order.finish(name, unloaded, whole=whole)


def taught(order, *seconds, **counts):
    """A service whose last requests each executed for so long, one by one."""
    service = Service(order, **counts)
    for each in seconds:
        service.execute(each)
    return service


def budgets(*seconds, waiting=0):
    return taught(DoublingBudget, *seconds, waiting=waiting)


def compete(services, seconds, step=0.005):
    """Let who asks with least compute, step by step; returns for how long each did."""
    had = dict.fromkeys(services, 0.0)
    now = max(service.now for service in services)
    for service in services:
        service.now = now
    for _ in range(round(seconds / step)):
        first = min(services, key=lambda service: service.value)
        for service in services:
            if service is first:
                service.compute(step)
            else:
                service.rest(step)
        had[first] += step
    return had


def test_a_group_names_the_orders_that_there_are():
    assert tuple(ORDERS) == get_args(TurnOrder)


@pytest.mark.parametrize("order", ORDERS.values())
def test_an_end_that_was_never_begun_is_taken(order):
    service = Service(order)
    service.order.finish("unknown", 1.0, whole=True)
    service.order.preempt("unknown")
    assert service.value == Service(order).value


class TestFairShare:
    def test_shares_are_by_the_number_of_requests(self):
        few, many = (taught(FairShare, *[1.0] * LEAST_FINISHED) for _ in range(2))
        compete([few, many], 10 * MEMORY_SECONDS)
        few.counts, many.counts = [1, 0], [2, 2]
        compete([few, many], 10 * MEMORY_SECONDS)
        had = compete([few, many], 10.0)
        assert had[many] / had[few] == pytest.approx(4, rel=0.05)

    def test_shares_are_by_how_short_requests_are(self):
        short, long = taught(FairShare, *[0.5] * LEAST_FINISHED), taught(FairShare, *[2.0] * LEAST_FINISHED)
        compete([short, long], 10 * MEMORY_SECONDS)
        had = compete([short, long], 10.0)
        assert had[short] / had[long] == pytest.approx(4, rel=0.05)

    def test_who_was_idle_goes_first_and_not_for_ever(self):
        busy, idle = (taught(FairShare, *[1.0] * LEAST_FINISHED) for _ in range(2))
        idle.rest(4 * MEMORY_SECONDS)
        busy.compute(4 * MEMORY_SECONDS)
        assert compete([busy, idle], 0.5)[busy] == 0
        had = compete([busy, idle], 20 * MEMORY_SECONDS)
        assert had[busy] / had[idle] == pytest.approx(1, rel=0.2)

    def test_a_turn_is_kept_for_a_slice(self):
        one, other = (taught(FairShare, *[1.0] * LEAST_FINISHED) for _ in range(2))
        compete([one, other], 10 * MEMORY_SECONDS)
        step, turns, before = 0.005, 0, None
        for _ in range(400):
            had = compete([one, other], step, step)
            holder = max(had, key=had.get)
            turns += holder is not before
            before = holder
        assert turns == pytest.approx(400 * step / SLICE_SECONDS, rel=0.1)

    def test_it_asks_alike_while_it_does_not_compute(self):
        service = taught(FairShare, *[1.0] * LEAST_FINISHED)
        value = service.value
        service.rest(3.0)
        service.counts = [9, 9]
        assert service.value == value

    def test_a_request_counts_as_long_as_it_would_take_alone(self):
        slow, quick = Service(FairShare), Service(FairShare)
        for _ in range(LEAST_FINISHED):
            slow.execute(2.0)
            quick.execute(2.0, unloaded=0.5)
        compete([slow, quick], 10 * MEMORY_SECONDS)
        had = compete([slow, quick], 10.0)
        assert had[quick] / had[slow] == pytest.approx(4, rel=0.05)

    def test_who_was_aborted_teaches_nothing(self):
        one, other = (taught(FairShare, *[1.0] * LEAST_FINISHED) for _ in range(2))
        for _ in range(2 * LEAST_FINISHED):
            other.execute(0.01, whole=False)
        compete([one, other], 10 * MEMORY_SECONDS)
        had = compete([one, other], 10.0)
        assert had[one] / had[other] == pytest.approx(1, rel=0.05)

    def test_a_clock_that_is_set_back_forgets_nothing(self):
        service = taught(FairShare, *[1.0] * LEAST_FINISHED)
        had = service.order._had
        service.order.compute(1.0, service.now - 3600)
        assert service.order._had == pytest.approx(had + 1.0)

    @given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 100)), max_size=50))
    def test_it_always_asks_with_a_finite_value(self, lived):
        service = Service(FairShare, running=0)
        for computed, rested in lived:
            service.rest(rested)
            service.execute(computed)
            assert abs(service.value) < float("inf")


class TestDoublingBudget:
    def test_until_enough_requests_have_finished_all_services_ask_alike(self):
        short = budgets(*[0.1] * (LEAST_FINISHED - 1), waiting=1)
        assert short.value == budgets().value == UNKNOWN_SECONDS**2
        short.execute(0.1)
        assert short.value < UNKNOWN_SECONDS**2

    def test_a_service_of_short_requests_goes_before_one_of_long_ones(self):
        assert budgets(*[0.1] * LEAST_FINISHED, waiting=1).value == pytest.approx(0.1 * 0.1)
        assert budgets(*[4.0] * LEAST_FINISHED, waiting=1).value == pytest.approx(4.0 * 4.0)

    def test_what_has_executed_counts_less_and_what_waits_has_all_of_its_budget(self):
        service = budgets(*[4.0] * LEAST_FINISHED, waiting=1)
        service.order.start("one")
        service.compute(3.0)
        assert service.value == pytest.approx(4.0 * 1.0)

    def test_who_has_used_up_its_budget_goes_behind(self):
        service = budgets(*[4.0] * LEAST_FINISHED)
        service.order.start("one")
        service.compute(4.5)
        assert service.value == pytest.approx(4.0 * 7.5), "it was given one of 8 s"
        service.counts = [1, 1]
        assert service.value == pytest.approx(4.0 * 4.0), "who waits goes first"

    def test_who_was_preempted_does_not_execute(self):
        service = budgets(*[4.0] * LEAST_FINISHED)
        service.order.start("one")
        service.compute(1.0)
        service.order.preempt("one")
        service.compute(2.0)
        service.order.start("one")
        assert service.value == pytest.approx(4.0 * 3.0)

    def test_who_was_aborted_teaches_nothing(self):
        service = budgets(*[4.0] * LEAST_FINISHED, waiting=1)
        for _ in range(2 * LEAST_FINISHED):
            service.execute(0.01, whole=False)
        assert service.value == pytest.approx(4.0 * 4.0)
