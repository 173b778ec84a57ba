"""The studies of EconoServe, AccelGen and step budgets: they run all that their figures and pages ask for."""

import json
import random

import pytest

from e2e.bench import (
    accelgen,
    accelgen_cases,
    accelgen_page,
    econoserve,
    econoserve_cases,
    econoserve_page,
    plots,
    results,
    step_budget,
    versus,
)
from e2e.bench.cases import SLOS, TARGETS
from e2e.bench.workloads import MIX

LATENCIES = [f"{kind}_{end}" for kind in ("ttft", "jct", "tbt") for end in ("mean", "p95", "p99")]
FIGURES = [
    *LATENCIES,
    *("normalized_mean", "wait_max", "kv_use", "tokens_per_second", "met_asked"),
    *(f"met_{name}" for name in TARGETS),
    *(f"met_asked_{each.client}" for each in MIX),
]


def found(cases):
    """Any figures, the same for the same run, of just the runs that the study makes."""
    return {
        case: {name: random.Random(f"{case} {name}").uniform(0.1, 1.0) for name in FIGURES}
        | {"preemptions": 3, "decisions": f"{case.load} {case.seed} {case.budget}"}
        for case in cases
    }


@pytest.fixture
def without_pictures(monkeypatch):
    monkeypatch.setattr(plots, "curves", lambda path, *_, **__: path)


@pytest.mark.usefixtures("without_pictures")
def test_the_study_of_econoserve(tmp_path):
    runs = found(econoserve_cases.everything())
    figures = econoserve.figures(runs)
    assert {"norm_latency_ratio_kvbound", "of_clairvoyant_kvbound", "wait_max_ratio_kvbound"} < figures.keys()
    assert {"light_load_worst_ratio", "claims"} < figures.keys()
    assert {f"{name}{end}" for name in econoserve.PAPER for end in ("", "_paper_low")} < figures[
        "claims"
    ].keys()
    assert econoserve_page.WHY.keys() == econoserve.PAPER.keys()
    page = econoserve_page.write(runs, tmp_path).read_text()
    assert "Simulated: no GPU ran" in page
    assert "synthetic Alpaca" in page
    written = results.write("econoserve", "c", figures, simulated=True, folder=tmp_path)
    claims = json.loads(written.read_text())["figures"]["claims"]
    assert all(isinstance(value, float) for value in claims.values())


@pytest.mark.usefixtures("without_pictures")
def test_the_study_of_accelgen(tmp_path):
    runs = found(accelgen_cases.everything())
    figures = accelgen.figures(runs)
    assert {"tbt_p99_ms_code", "light_load_worst_ratio", "claims"} < figures.keys()
    assert accelgen_page.write(runs, tmp_path).exists()


def attained(case, stock, ours):
    return {
        f"met_{name}": (ours if case.policy in ("AccelGen", "EconoServe") else stock) for name in TARGETS
    } | {"met_asked": ours if case.policy == "AccelGen" else stock}


def test_goodput_is_of_the_loads_that_keep_nine_in_ten():
    cases = accelgen_cases.everything()
    runs = {
        case: figures | attained(case, stock=1 - case.load, ours=1 - case.load / 2)
        for case, figures in found(cases).items()
    }
    figures = accelgen.figures(runs)
    assert figures["goodput_ratio_code"] == pytest.approx(2)
    assert figures["goodput_ratio_code_bound"] == 0
    assert figures["attainment_mixed_load"] == 0.5
    assert figures["attainment_mixed_where_stock_below_60"] == 0.75


def test_a_watermark_that_changes_no_decision_is_said_to_decide_nothing():
    setting = accelgen_cases.CONVERSATION
    runs = found(accelgen_cases.everything())
    assert not versus.watermark_decides(runs, setting)
    marked = next(case for case in runs if case.workload == setting.workload and case.watermark)
    runs[marked]["decisions"] = "other"
    assert versus.watermark_decides(runs, setting)


def test_step_budgets_are_held_against_the_best_fixed_one():
    runs = found(step_budget.everything(accelgen_cases.BUDGETED))
    for case, figures in runs.items():
        share = 0.8 if case.step_budget else 0.88
        figures |= {f"met_{name}": share for name in (*TARGETS, "asked")}
    figures = step_budget.figures(runs, accelgen_cases.BUDGETED)
    assert figures["larry_slo_vs_best_fixed_worst"] == 1
    assert figures["larry_slo_vs_best_fixed_worst_attainment"] == pytest.approx(1.1)
    assert "512" in step_budget.page(runs, accelgen_cases.BUDGETED)


def test_every_target_of_a_service_is_measured():
    assert set(SLOS) - {""} <= set(TARGETS)
    assert {accelgen_cases.target_of(each) for each in accelgen_cases.SETTINGS} <= {*TARGETS, "asked"}


def test_studies_are_in_budget():
    assert len(econoserve_cases.everything()) < 300
    assert len(accelgen_cases.everything()) < 300
    assert len(step_budget.everything(accelgen_cases.BUDGETED)) < 120
