"""A fleet's load is a fraction of what its engines sustain on the very requests that it serves."""

from dataclasses import replace

import pytest

from e2e.bench.runs import fleet as fleet_cases
from e2e.bench.runs.fleet import PIECE, FleetCase, requests_of, saturations
from e2e.bench.sal import cases as sal_cases

CASE = FleetCase("conversation", "sal", 0.9, seed=1, requests=20)
LONGEST = 8192


def lengths(arrivals):
    return [(arrival.prompt_tokens, arrival.output_tokens) for arrival in arrivals]


@pytest.mark.parametrize(
    "case",
    [
        CASE,
        replace(CASE, engines=2),
        replace(CASE, engines=4 * PIECE, seed=0),
        replace(CASE, engines=2 * PIECE),
        replace(CASE, workload="code-poisson", engines=2 * PIECE),
        replace(CASE, workload="mixed"),
        replace(CASE, workload="chats"),
    ],
)
def test_the_requests_that_saturate_are_those_that_are_served(case):
    pieces = [each for job in saturations(case) for each in requests_of(job, LONGEST)]
    assert lengths(pieces) == lengths(requests_of(case, LONGEST))
    assert len(pieces) == case.requests * case.engines


def test_the_largest_fleet_shares_its_pieces_with_smaller_ones():
    large = saturations(replace(CASE, engines=64, seed=0))
    small = [job for seed in range(4) for job in saturations(replace(CASE, seed=seed))]
    assert large == small


def test_balancers_share_a_saturation_and_what_changes_requests_or_cost_does_not():
    for same in (
        {"balancer": "random"},
        {"load": 0.7},
        {"slow": 1},
        {"report_interval": 2.5},
        {"policy": "LARRY"},
    ):
        assert saturations(replace(CASE, **same)) == saturations(CASE)
    doubts = ({"mixed": 1.4}, {"overhead_ms": 1.0}, {"host": 2.0})
    for other in ({"seed": 0}, {"requests": 30}, {"engines": 4}, *doubts):
        assert saturations(replace(CASE, **other)) != saturations(CASE)


def test_a_load_is_of_all_engines_together(monkeypatch):
    def run_all(jobs, function, _title, **_):
        if function is fleet_cases.run_saturation:
            return {job: {"rate": 10.0 + 10 * (job.seed % 2)} for job in jobs}
        return {job: {"rate": job.rate} for job in jobs}

    monkeypatch.setattr(fleet_cases, "run_all", run_all)
    slow = replace(CASE, slow=1, load=0.7)
    large = replace(CASE, engines=32, seed=0)
    found = fleet_cases.measure([CASE, slow, large], "t", 1)
    assert found[CASE]["rate"] == pytest.approx(0.9 * 16 * 20)
    assert found[slow]["rate"] == pytest.approx(0.7 * 15.5 * 20)
    assert found[large]["rate"] == pytest.approx(0.9 * 32 * 2 / (1 / 10 + 1 / 20)), "times add, not rates"


def test_traces_are_long_enough_for_every_seed_to_have_requests_of_its_own():
    cases = sal_cases.all_cases(sal_cases.settings(quick=False), {}, [])
    jobs = {job for case in cases for job in saturations(case) if case.workload == "conversation"}
    for engines in {job.engines for job in jobs}:
        mine = [job for job in jobs if job.engines == engines]
        starts = {requests_of(job, LONGEST)[0].prompt_tokens for job in mine}
        assert len(starts) == len(mine)
        assert sum(job.requests * job.engines for job in mine) <= 19_365  # of the trace
