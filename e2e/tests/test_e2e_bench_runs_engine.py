"""A case is a value: what it runs, at which rate, with which policy."""

from dataclasses import replace

import pytest

from e2e.bench.runs import engine as cases
from e2e.bench.runs import workloads
from e2e.bench.runs.doubt import CORNERS, GRID, Doubt
from e2e.bench.runs.engine import Case
from headrace_engine.contracts import PolicyDocument, StepBudget
from headrace_engine.cost.host import NO_HOST_TIME, server_host_time
from headrace_engine.policies.engine_view import NO_TARGETS, Targets
from headrace_engine.sim.form import Form
from headrace_engine.sim.outcome import Outcome
from headrace_engine.sim.workloads.arrival import Arrival

CASE = Case("code", "llama-3-8b-h100", 0.5, seed=1, requests=50)


def test_a_load_is_a_fraction_of_what_stock_sustains(monkeypatch):
    ran = []

    def run_all(jobs, function, title, **_):
        ran.extend(jobs)
        return {job: {"rate": 20.0} if function is cases.run_overload else {"x": job.rate} for job in jobs}

    monkeypatch.setattr(cases, "run_all", run_all)
    larry = replace(CASE, policy="LARRY", load=0.9, budget=1024, watermark=0.05)
    assert cases.measure([CASE, larry], "t") == {CASE: {"x": 10.0}, larry: {"x": 18.0}}
    assert len(ran) == 3, "both loads are of the same saturation"


@pytest.mark.parametrize(
    "change",
    [{"seed": 2}, {"mixed": 1.4}, {"overhead_ms": 1.0}, {"host": 2.0}, {"requests": 60}, {"sync": True}],
)
def test_what_changes_stock_changes_its_saturation(change):
    assert cases.overload(replace(CASE, **change)) != cases.overload(CASE)
    for same in ({"policy": "LARRY"}, {"load": 0.9}, {"budget": 1024}, {"step_budget": 512}):
        assert cases.overload(replace(CASE, **same)) == cases.overload(CASE)


def test_modern_engines_plan_ahead_unless_told_not_to():
    assert cases.settings_of("llama-3-8b-h100", sync=False).async_scheduling
    assert not cases.settings_of("llama-3-8b-h100", sync=True).async_scheduling
    assert not cases.settings_of("opt-13b-a100", sync=False).async_scheduling


def test_policies_become_what_the_simulator_takes():
    assert cases.policy_of(CASE) is None
    fixed = replace(CASE, policy="LARRY", parameters=(("alpha", 5.0),), step_budget=1024)
    assert cases.policy_of(fixed) == PolicyDocument(
        "LARRY", {"alpha": 5.0}, StepBudget("Fixed", 1024), cases.SLOS[""]
    )
    assert cases.policy_of(replace(CASE, policy="FCFS")) == PolicyDocument(
        "FCFS", {}, StepBudget(), cases.SLOS[""]
    )


def test_methods_that_no_service_can_choose_make_a_form_of_the_document():
    general = replace(CASE, policy="EconoServe", parameters=(("patience", 0),))
    document = cases.policy_of(general)
    assert cases.policy_of(replace(general, methods=(("variant", "Full"),))) == Form(
        document, {"variant": "Full"}
    )


def test_engines_cache_prefixes_as_vllm_does_by_default():
    assert all(engine.settings.prefix_caching for engine in cases.ENGINES.values())


ONE_SECOND = Targets(ttft=1.0)


def outcomes(clients, ttfts, targets=ONE_SECOND):
    return [
        Outcome(
            Arrival(float(at), 10, 2, client=client, targets=targets),
            first_token_at=at + ttft,
            finished_at=at + ttft + 0.01,
        )
        for at, (client, ttft) in enumerate(zip(clients, ttfts, strict=True))
    ]


def test_the_class_with_the_lowest_attainment_is_named_beside_the_total():
    met = cases.own_attainment(outcomes(["chat", "code"] * 50, [0.5] * 50 + [0.5, 2.0] * 25))
    assert met["met_own"] == pytest.approx(60 / 80)
    assert met["met_own_worst"] == met["met_own_code"] == pytest.approx(20 / 40)
    assert met["met_own_iterations"] == pytest.approx((60 * 2 + 20) / 160), "the second token is in time"
    assert cases.own_attainment(outcomes([""] * 20, [0.5] * 20, NO_TARGETS)) == {}


def test_the_host_takes_its_time_but_where_it_is_in_the_cost_model():
    once = server_host_time(1)
    assert cases.host_of("llama-3-8b-h100") == once
    twice = cases.host_of("llama-3-8b-h100", 2.0)
    assert twice.per_request == 2 * once.per_request > 0
    assert (twice.intake, twice.exposed) == (2 * once.intake, once.exposed)
    assert cases.host_of("llama-3-8b-h100", 0.0).per_step == 0
    assert cases.host_of("opt-13b-a100") == NO_HOST_TIME


def test_a_grid_of_doubts_begins_with_the_cost_model_as_it_is():
    for grid in (GRID, CORNERS):
        assert grid[0](CASE) == CASE
        assert len(set(grid)) == len(grid)
        assert {doubt.host for doubt in grid} == {0.0, 1.0, 2.0}
    assert set(CORNERS) < set(GRID)
    dear = replace(CASE, mixed=1.8, overhead_ms=3.0)
    assert [doubt for doubt in GRID if doubt(CASE) == dear] == [Doubt(1.8, 3.0)]
    assert str(Doubt(1.8, 3.0)) == "x1.8, +3 ms"
    assert str(Doubt(host=2.0)) == "x1, +0 ms, host x2"


def test_every_engine_has_a_cost_model():
    for name in cases.ENGINES:
        plain = cases.cost_of(name)
        dear = cases.cost_of(name, 1.8, 3.0)
        assert plain.profile.model == cases.ENGINES[name].model
        assert "mixed attention x1.8" in dear.profile.source


@pytest.mark.parametrize("name", [name for name in workloads.names() if "servegen" not in name])
def test_every_workload_fits_its_model_and_has_its_rate(name):
    longest = 4096 + max(workloads.BEGINNINGS) if "beginning" in name else 4096
    made = workloads.make(name, 300, 5.0, seed=2, longest=longest)
    assert len(made) == 300
    assert len(made) / made[-1].at == pytest.approx(5.0)
    assert max(arrival.tokens for arrival in made) <= longest
    assert [arrival.at for arrival in made] == sorted(arrival.at for arrival in made)
    assert made == workloads.make(name, 300, 5.0, seed=2, longest=longest)
    assert made != workloads.make(name, 300, 5.0, seed=3, longest=longest)


def test_a_model_that_no_prompt_fits_is_told_of():
    with pytest.raises(ValueError, match="no requests to draw"):
        workloads.make("beginning-4096", 300, 5.0, seed=2, longest=4096)


def test_servegen_clients_of_a_production_service():
    made = workloads.make("servegen-deepseek-r1", 300, 5.0, seed=2, longest=8192)
    assert len({arrival.client for arrival in made}) > 5
    assert len(made) / made[-1].at == pytest.approx(5.0)


def test_unknown_workload():
    with pytest.raises(ValueError, match="there is no workload 'codes', only code, conversation"):
        workloads.make("codes", 1, 1.0, 0, 8192)
