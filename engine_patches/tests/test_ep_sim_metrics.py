"""Figures of a run: what counts, what is left out, and where goodput ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_engine.policies.engine_view import Targets as Asked
from headrace_engine.sim import metrics
from headrace_engine.sim.metrics import Goodput, Targets
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.workloads.arrival import Arrival


def outcome(at=0.0, ttft=0.5, e2e=2.5, *, output=11, started=0.25, lost=False):
    return Outcome(
        Arrival(at, 100, output),
        started_at=None if lost else at + started,
        first_token_at=None if lost else at + ttft,
        finished_at=None if lost else at + e2e,
        longest_gap=0.4,
        preemptions=1,
        cached_tokens=50,
    )


def test_targets_hold_up_to_their_value():
    each = outcome()  # TTFT 0.5, mean TPOT 0.2, E2E 2.5
    assert metrics.met_targets(each, Targets())
    for targets, expected in (
        (Targets(ttft=0.5), True),
        (Targets(ttft=0.49), False),
        (Targets(tpot=0.2), True),
        (Targets(tpot=0.19), False),
        (Targets(e2e=2.5), True),
        (Targets(e2e=2.4), False),
        (Targets(e2e_scale=5.0), True),
        (Targets(e2e_scale=4.9), False),
        (Targets(ttft=0.5, e2e=2.4), False),
    ):
        assert metrics.met_targets(each, targets, unloaded=lambda _: 0.5) is expected, targets


def test_a_lost_request_meets_nothing():
    assert not metrics.met_targets(outcome(lost=True), Targets())
    assert metrics.attainment([outcome(), outcome(lost=True)], Targets(ttft=1)) == 0.5
    assert metrics.attainment([], Targets()) == 0


def tokens_in_time(targets, late=0):
    served = Outcome(Arrival(0.0, 100, 11, targets=targets), first_token_at=0.5, finished_at=2.5)
    served.late_tokens = late
    return metrics.tokens_in_time(served)


def test_iterations_count_by_the_deadline_of_each_token():
    assert tokens_in_time(Asked(ttft=0.5, tpot=0.2), late=3) == 8
    assert tokens_in_time(Asked(ttft=0.4, tpot=0.2), late=3) == 7
    assert tokens_in_time(Asked(e2e=2.5)) == 11
    assert tokens_in_time(Asked(e2e=2.4)) == 0
    assert metrics.tokens_in_time(outcome(lost=True)) == 0


def test_a_queue_that_empties_late_in_a_run_leaves_nobody_waiting():
    calm = [outcome(at=float(i), started=0.5) for i in range(100)]
    assert metrics.left_waiting(calm) == 0
    burst = [outcome(at=float(i), started=30.0 if i < 60 else 0.5) for i in range(100)]
    assert metrics.left_waiting(reversed(burst)) == 0


def test_a_queue_that_only_grows_leaves_what_it_had_when_the_last_quarter_began():
    growing = [outcome(at=float(i), started=i * 0.49) for i in range(100)]
    assert metrics.left_waiting(growing) == pytest.approx(0.24)
    starved = [outcome(at=float(i), started=0.5, lost=i % 10 == 0) for i in range(100)]
    assert metrics.left_waiting(starved) == pytest.approx(0.08)
    assert metrics.summarise_run(starved)["left_waiting"] == metrics.left_waiting(starved)
    assert metrics.left_waiting([]) == 0


def test_a_scale_needs_the_unloaded_time():
    with pytest.raises(ValueError, match="unloaded"):
        metrics.met_targets(outcome(), Targets(e2e_scale=5))


def test_the_edges_of_a_run_do_not_count():
    run = [outcome(at=float(i), ttft=100.0 if i < 10 or i >= 90 else 1.0, e2e=200.0) for i in range(100)]
    figures = metrics.summarise_run(reversed(run), {"fast": Targets(ttft=1.0)})
    assert figures["requests"] == 80
    assert figures["ttft_max"] == figures["ttft_mean"] == 1.0
    assert figures["met_fast"] == 1
    assert figures["met_fast_per_second"] == pytest.approx(80 / 79)
    assert figures["preemptions"] == 100


def test_figures_of_a_run():
    run = [outcome(at=i / 10, ttft=i / 100, started=i / 100, e2e=10.0, output=10) for i in range(101)]
    figures = metrics.summarise_run(run)
    assert figures["ttft_p50"] == pytest.approx(0.5)
    assert figures["ttft_p95"] == pytest.approx(0.1 + 0.8 * 0.95)
    assert figures["wait_max"] == pytest.approx(0.9)
    assert figures["normalized_mean"] == pytest.approx(1.0)
    assert figures["gap_p99"] == pytest.approx(0.4)
    assert figures["cached_share"] == 0.5
    assert figures["lost"] == 0
    assert figures["requests_per_second"] == pytest.approx(101 / 20)
    assert figures["tokens_per_second"] == pytest.approx(1010 / 20)


def test_requests_of_one_token_have_no_gaps():
    figures = metrics.summarise_run([outcome(output=1), outcome(output=1)])
    assert "tpot_mean" not in figures
    assert "gap_max" not in figures


def test_nothing_finished():
    figures = metrics.summarise_run([outcome(lost=True) for _ in range(20)], {"all": Targets()})
    assert figures["lost"] == figures["requests"] == 16
    assert figures["met_all"] == figures["requests_per_second"] == 0
    assert "ttft_mean" not in figures
    assert metrics.summarise_run([])["requests"] == 0


def test_sustained_rate_is_that_of_the_middle():
    run = [outcome(e2e=i / 4) for i in range(1, 101)]  # four a second
    assert metrics.sustained_rate(run) == pytest.approx(4.0)
    with pytest.raises(ValueError, match="at least 10"):
        metrics.sustained_rate(run[:9])


def test_goodput_is_where_attainment_first_falls_short():
    assert metrics.goodput([0.5, 1.0], [1.0, 0.8]) == Goodput(0.75, "=")
    assert metrics.goodput([1.0, 0.5], [0.8, 1.0]) == Goodput(0.75, "=")
    assert metrics.goodput([0.1, 0.5], [0.8, 0.5]) == Goodput(0.1, "<")
    assert metrics.goodput([0.1, 1.1], [1.0, 0.9]) == Goodput(1.1, ">")
    assert metrics.goodput([0.1, 0.2, 0.3], [0.95, 0.85, 0.95]).load == pytest.approx(0.15)
    with pytest.raises(ValueError, match="at least one point"):
        metrics.goodput([], [])


@given(
    st.lists(st.tuples(st.floats(0.1, 2), st.floats(0, 1)), min_size=1, max_size=8, unique_by=lambda p: p[0])
)
def test_goodput_lies_in_the_sweep(points):
    loads, shares = zip(*points, strict=True)
    found = metrics.goodput(loads, shares)
    assert min(loads) <= found.load <= max(loads)
    raised = metrics.goodput(loads, [min(1.0, share + 0.1) for share in shares])
    assert raised.load >= found.load or found.bound == ">"
