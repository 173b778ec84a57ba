"""The studies of EconoServe, AccelGen and step budgets: they run all that their figures and pages ask for."""

import json
import random

import pytest

from e2e.bench import step_budget
from e2e.bench.accelgen import cases as accelgen_cases
from e2e.bench.accelgen import figures as accelgen
from e2e.bench.accelgen import page as accelgen_page
from e2e.bench.accelgen import study as accelgen_study
from e2e.bench.econoserve import cases as econoserve_cases
from e2e.bench.econoserve import figures as econoserve
from e2e.bench.econoserve import page as econoserve_page
from e2e.bench.report import plots, results
from e2e.bench.runs import comparison, search
from e2e.bench.runs.engine import SLOS, TARGETS, policy_of
from e2e.bench.runs.workloads import MIX
from headrace_engine.policies import registry
from headrace_engine.policies.engine_view import EngineLimits
from headrace_engine.sim.form import Form

LIMITS = EngineLimits(16, 1, 1000, 2048, 256)
LATENCIES = [f"{kind}_{end}" for kind in ("ttft", "e2e", "tpot") for end in ("mean", "p95", "p99")]
FIGURES = [
    *LATENCIES,
    *("normalized_mean", "wait_max", "kv_use", "tokens_per_second", "met_own"),
    *(f"met_{name}" for name in TARGETS),
    *(f"met_own_{each.client}" for each in MIX),
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
    assert {"light_load_worst_ratio", "findings"} < figures.keys()
    assert {f"{name}{end}" for name in econoserve.PAPER for end in ("", "_paper_low")} < figures[
        "findings"
    ].keys()
    assert econoserve_page.FINDINGS.keys() == econoserve.PAPER.keys()
    page = econoserve_page.write(runs, tmp_path).read_text()
    assert "Simulated: no GPU ran" in page
    assert "synthetic Alpaca" in page
    written = results.write("econoserve", "c", figures, simulated=True, folder=tmp_path)
    findings = json.loads(written.read_text())["figures"]["findings"]
    assert all(isinstance(value, float) for value in findings.values())


@pytest.mark.usefixtures("without_pictures")
def test_the_study_of_accelgen(tmp_path):
    study_of = accelgen_study.collect(lambda cases: attaining(cases, stock=1.2, ours=1.4))
    figures = accelgen.figures(*study_of)
    assert {"tpot_p99_ms_code", "light_load_worst_ratio", "findings"} < figures.keys()
    page = accelgen_page.write(*study_of, tmp_path).read_text()
    assert "The mix at load 1," in page


def attaining(cases, stock, ours):
    """Figures in which attainment falls with load, from the highest share."""
    policies = ("AccelGen", "EconoServe")
    made = found(cases)
    for case, figures in made.items():
        share = max((ours if case.policy in policies else stock) - case.load, 0.0)
        figures |= {f"met_{name}": share for name in (*TARGETS, "own")}
    return made


def test_goodput_is_of_the_loads_that_keep_nine_in_ten():
    study_of = accelgen_study.collect(lambda cases: attaining(cases, stock=1.05, ours=1.2))
    figures = accelgen.figures(*study_of)
    assert figures["goodput_ratio_code"] == pytest.approx(0.3 / 0.15, rel=1e-3)
    assert figures["goodput_ratio_code_bound"] == 0
    assert "goodput_ratio_conv" not in figures  # both miss at the lowest load: no ratio
    assert figures["attainment_mixed_load"] == 0.9
    assert figures["attainment_mixed_where_stock_below_60"] == pytest.approx(0.3)


def test_a_watermark_that_changes_no_decision_is_said_to_decide_nothing():
    setting = accelgen_cases.CONVERSATION
    runs = found(accelgen_cases.everything())
    assert not comparison.watermark_decides(runs, setting)
    marked = next(case for case in runs if case.workload == setting.workload and case.watermark)
    runs[marked]["decisions"] = "other"
    assert comparison.watermark_decides(runs, setting)


def test_step_budgets_are_held_against_the_best_fixed_one():
    def measured(cases):
        made = found(cases)
        for case, figures in made.items():
            share = 1.9 - case.load - (0.02 if case.step_budget else 0) - (case.step_budget == 512)
            figures |= {f"met_{name}": share for name in (*TARGETS, "own")}
        return made

    settings = [accelgen_cases.CONVERSATION, accelgen_cases.POISSON]
    study_of = step_budget.collect(measured, settings)
    figures = step_budget.figures(*study_of, settings)
    assert figures["larry_slo_vs_best_fixed_worst"] == pytest.approx(1 / 0.98, rel=1e-3)
    assert figures["larry_slo_vs_best_fixed_worst_attainment"] == pytest.approx(0.9 / 0.88, rel=1e-3)
    assert "512" in step_budget.page(*study_of, settings)


def test_a_search_asks_for_few_runs_and_finds_what_a_sweep_would():
    setting, asked = accelgen_cases.CODE, []

    def measured(cases):
        asked.extend(cases)
        return {case: {"met_ttft_tpot": 1.07 - case.load} for case in cases}

    searches = {seed: ("ttft_tpot", search.goodput(setting, seed, comparison.stock)) for seed in (0, 1)}
    goodputs, made = search.run(searches, measured)
    assert [goodputs[seed].load for seed in (0, 1)] == pytest.approx([0.17, 0.17])
    assert len(asked) == len(made) <= 2 * 5


def test_the_best_of_several_kinds_is_found_whichever_comes_first():
    setting = accelgen_cases.CODE

    def measured(cases):
        return {case: {"met_ttft_tpot": 1 - case.load * 8192 / case.budget / 2} for case in cases}

    for kinds in (comparison.choices(setting), comparison.choices(setting)[::-1]):
        searches = {0: ("ttft_tpot", search.best(setting, 0, kinds))}
        goodputs, _ = search.run(searches, measured)
        assert goodputs[0].load == pytest.approx(0.2)


def test_every_target_of_a_service_is_measured():
    assert set(SLOS) - {""} <= set(TARGETS)
    assert {accelgen_cases.target_of(each) for each in accelgen_cases.SETTINGS} <= {*TARGETS, "own"}


def test_every_run_chooses_what_there_is_to_choose():
    every = dict.fromkeys([*econoserve_cases.everything(), *accelgen_cases.everything()])
    chosen = {(each.policy, each.parameters, each.methods): each for each in every}
    made = [policy_of(each) for each in chosen.values() if each.policy in registry.policy_names()]
    forms = [each for each in made if isinstance(each, Form)]
    for form in forms:
        form.build(LIMITS)
    for document in (each.document if isinstance(each, Form) else each for each in made):
        registry.validate_document(document)
        assert registry.used_parameters(document.policy, document.parameters) == document.parameters
    assert len(forms) == 4 + 2 + 6  # as published, parts of it, and ablations


def test_studies_are_in_budget():
    assert len(econoserve_cases.everything()) < 700
    assert len(accelgen_cases.everything()) + 6 * len(accelgen_cases.searches()) < 600
