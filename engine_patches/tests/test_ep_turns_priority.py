"""With what priority a service asks for the turn: what its next request has left, times its mean time."""

import pytest

from headrace_engine.policies.doubling_budget.execution_times import LEAST_FINISHED
from headrace_engine.turns.priority import UNKNOWN_SECONDS, ServicePriority


def taught(*seconds):
    """A service whose last requests each executed for so long, one by one."""
    priority = ServicePriority()
    for number, each in enumerate(seconds):
        execute(priority, str(number), each)
    return priority


def execute(priority, request, seconds, *, whole=True):
    priority.start(request)
    priority.compute(seconds)
    priority.finish(request, whole=whole)


def test_until_enough_requests_have_finished_all_services_ask_alike():
    short = taught(*[0.1] * (LEAST_FINISHED - 1))
    assert short.value(waiting=True) == ServicePriority().value(waiting=False) == UNKNOWN_SECONDS**2
    execute(short, "last", 0.1)
    assert short.value(waiting=True) < UNKNOWN_SECONDS**2


def test_a_service_of_short_requests_goes_before_one_of_long_ones():
    short, long = taught(*[0.1] * LEAST_FINISHED), taught(*[4.0] * LEAST_FINISHED)
    assert short.value(waiting=True) == pytest.approx(0.1 * 0.1)
    assert long.value(waiting=True) == pytest.approx(4.0 * 4.0)


def test_what_has_executed_counts_less_and_what_waits_has_all_of_its_budget():
    priority = taught(*[4.0] * LEAST_FINISHED)
    priority.start("one")
    priority.compute(3.0)
    assert priority.value(waiting=True) == pytest.approx(4.0 * 1.0)


def test_who_has_used_up_its_budget_goes_behind():
    priority = taught(*[4.0] * LEAST_FINISHED)
    priority.start("one")
    priority.compute(4.5)
    assert priority.value(waiting=False) == pytest.approx(4.0 * 7.5), "it was given one of 8 s"
    assert priority.value(waiting=True) == pytest.approx(4.0 * 4.0), "who waits goes first"


def test_who_was_preempted_does_not_execute():
    priority = taught(*[4.0] * LEAST_FINISHED)
    priority.start("one")
    priority.compute(1.0)
    priority.preempt("one")
    priority.compute(2.0)
    priority.start("one")
    assert priority.value(waiting=False) == pytest.approx(4.0 * 3.0)


def test_who_was_aborted_teaches_nothing():
    priority = taught(*[4.0] * LEAST_FINISHED)
    for number in range(2 * LEAST_FINISHED):
        execute(priority, f"aborted {number}", 0.01, whole=False)
    assert priority.value(waiting=True) == pytest.approx(4.0 * 4.0)


def test_an_end_that_was_never_begun_is_taken():
    priority = ServicePriority()
    priority.finish("unknown", whole=True)
    priority.preempt("unknown")
    assert priority.value(waiting=False) == UNKNOWN_SECONDS**2
