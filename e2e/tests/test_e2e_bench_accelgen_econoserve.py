"""The studies of EconoServe, AccelGen and step budgets: they run all that their figures and pages ask for."""

import json
import random

import pytest

from e2e.bench import step_budget
from e2e.bench.accelgen import cases as accelgen_cases
from e2e.bench.accelgen import figures as accelgen
from e2e.bench.accelgen import page as accelgen_page
from e2e.bench.accelgen import study as accelgen_study
from e2e.bench.doubling_budget import cases as doubling_budget_cases
from e2e.bench.econoserve import cases as econoserve_cases
from e2e.bench.econoserve import figures as econoserve
from e2e.bench.econoserve import page as econoserve_page
from e2e.bench.econoserve import study as econoserve_study
from e2e.bench.report import plots, results
from e2e.bench.runs import comparison
from e2e.bench.runs.engine import SLOS, TARGETS, policy_of
from e2e.bench.runs.tuning import Tuning
from e2e.bench.runs.workloads import MIX
from headrace_engine.policies import registry
from headrace_engine.policies.engine_view import EngineLimits
from headrace_engine.sim.form import Form

LIMITS = EngineLimits(16, 1, 1000, 2048, 256)
LATENCIES = [f"{kind}_{end}" for kind in ("ttft", "e2e", "tpot") for end in ("mean", "p95", "p99")]
FIGURES = [
    *LATENCIES,
    *("normalized_mean", "wait_max", "kv_use", "tokens_per_second", "met_own", "met_own_worst"),
    "met_own_iterations",
    *(f"met_{name}" for name in TARGETS),
    *(f"met_own_{each.client}" for each in MIX),
]
ASKED = {"own", "own_worst", *TARGETS}


def any_figures(cases):
    """Any figures, the same for the same run."""
    return {
        case: {name: random.Random(f"{case} {name}").uniform(0.1, 1.0) for name in FIGURES}
        | {"preemptions": 3, "left_waiting": 0.0, "decisions": f"{case.load} {case.seed} {case.budget}"}
        for case in cases
    }


@pytest.fixture
def without_pictures(monkeypatch):
    monkeypatch.setattr(plots, "curves", lambda path, *_, **__: path)


@pytest.mark.usefixtures("without_pictures")
def test_the_study_of_econoserve(tmp_path):
    study = econoserve_study.collect(any_figures)
    figures = econoserve.figures(*study)
    for end in ("", "_live", "_live_default_engine"):
        assert {f"{name}_kvbound{end}" for name in ("norm_latency_ratio", "of_clairvoyant")} < figures.keys()
    assert {"light_load_worst_ratio", "findings", "findings_ours"} < figures.keys()
    assert {f"{name}{end}" for name in econoserve.PAPER for end in ("", "_paper_low")} < figures[
        "findings"
    ].keys()
    assert econoserve_page.FINDINGS.keys() == econoserve.PAPER.keys()
    page = econoserve_page.write(*study, tmp_path).read_text()
    assert "Simulated: no GPU ran" in page
    assert "synthetic Alpaca" in page
    assert page.index("| live ") < page.index("| 75 % right ")
    written = results.write("econoserve", "c", figures, simulated=True, folder=tmp_path)
    findings = json.loads(written.read_text())["figures"]["findings"]
    assert all(isinstance(value, float) for value in findings.values())


def test_rows_that_compare_with_a_paper_have_its_own_algorithms():
    found, tunings = econoserve_study.collect(any_figures)
    kv = econoserve_cases.KV
    for case in comparison.runs(kv, kv.point, econoserve_cases.PUBLISHED):
        found[case] |= {"kv_use": 0.9}
    for case in comparison.runs(kv, kv.point):
        found[case] |= {"kv_use": 0.5}
    figures = econoserve.figures(found, tunings)
    assert figures["findings"]["kv_use_above_stock_points"] == pytest.approx(40)
    assert figures["findings_ours"]["kv_use_above_stock_points"] != pytest.approx(40)
    setting = accelgen_cases.PARTS_SHORT_OF_KV
    [case] = comparison.runs(setting, setting.point, accelgen_cases.published(setting))
    assert dict(case.methods) == {"selection": "NearestFit", "preemption": "Always", "skipping": True}
    assert dict(case.parameters) == {"patience": 0}


@pytest.mark.usefixtures("without_pictures")
def test_the_study_of_accelgen(tmp_path):
    study = accelgen_study.collect(lambda cases: attaining(cases, stock=1.6, ours=1.8))
    figures = accelgen.figures(study)
    assert {"tpot_p99_ms_code", "light_load_worst_ratio", "findings", "findings_ours"} < figures.keys()
    assert {"goodput_ratio_mixed", "goodput_ratio_mixed_worst_class"} < figures.keys()
    page = accelgen_page.write(study, tmp_path).read_text()
    assert "The mix at load 1.1 where KV binds" in page
    assert "worst class" in page


def attaining(cases, stock, ours, worst=0.0):
    """Figures in which attainment falls with load, from the highest share; the worst class's further down."""
    policies = ("AccelGen", "EconoServe")
    made = any_figures(cases)
    for case, figures in made.items():
        share = max((ours if case.policy in policies else stock) - case.load, 0.0)
        figures |= {f"met_{name}": share for name in ASKED}
        figures["met_own_worst"] = max(share - worst, 0.0)
    return made


def test_goodput_is_of_the_loads_that_keep_nine_in_ten():
    study = accelgen_study.collect(lambda cases: attaining(cases, stock=1.05, ours=1.2))
    figures = accelgen.figures(study)
    for end in ("", "_default_engine"):
        assert figures[f"goodput_ratio_code{end}"] == pytest.approx(0.3 / 0.15, rel=1e-3)
        assert figures[f"goodput_ratio_code{end}_bound"] == 0
    assert "goodput_ratio_conv" not in figures  # both miss at the lowest load: no ratio
    assert figures["attainment_mixed_load"] == 0.8
    assert figures["attainment_mixed_where_stock_below_60"] == pytest.approx(0.4)


def test_classes_are_judged_by_the_worst_beside_the_total():
    study = accelgen_study.collect(lambda cases: attaining(cases, stock=1.8, ours=2.1, worst=0.2))
    figures = accelgen.figures(study)
    assert figures["goodput_ratio_mixed"] == pytest.approx(1.2 / 0.9, rel=1e-3)
    assert figures["goodput_ratio_mixed_worst_class"] == pytest.approx(1.0 / 0.7, rel=1e-3)


def test_a_watermark_that_changes_no_decision_is_said_to_decide_nothing():
    study = accelgen_study.collect(any_figures)
    setting = accelgen_cases.one_seed(accelgen_cases.CONVERSATION)
    stock = accelgen_cases.tuned(setting, "stock", "ttft_tpot", study.tunings)
    assert not comparison.watermark_decides(study.found, setting, stock)
    marked = next(case for case in study.found if case.workload == setting.workload and case.watermark)
    study.found[marked]["decisions"] = "other"
    assert comparison.watermark_decides(study.found, setting, stock)


def test_step_budgets_are_held_against_the_best_fixed_one():
    def measured(cases):
        made = any_figures(cases)
        for case, figures in made.items():
            share = 1.9 - case.load - (0.02 if case.step_budget else 0) - (case.step_budget == 512)
            figures |= {f"met_{name}": share for name in ASKED}
        return made

    settings = [accelgen_cases.CONVERSATION, accelgen_cases.POISSON]
    study_of = step_budget.collect(measured, settings)
    figures = step_budget.figures(*study_of, settings)
    assert figures["larry_slo_vs_best_fixed_worst"] == pytest.approx(1 / 0.98, rel=1e-3)
    assert figures["larry_slo_vs_best_fixed_worst_attainment"] == pytest.approx(0.9 / 0.88, rel=1e-3)
    assert "512" in step_budget.page(*study_of, settings)


def test_every_target_of_a_service_is_measured():
    assert set(SLOS) - {""} <= set(TARGETS)
    targets = {target for each in accelgen_cases.SETTINGS for target in accelgen_cases.targets_of(each)}
    assert targets <= ASKED


def tuned_alike(wanted):
    return dict.fromkeys(wanted, Tuning(1456))


def test_every_run_chooses_what_there_is_to_choose():
    every = dict.fromkeys(
        case
        for study in (econoserve_cases, accelgen_cases, doubling_budget_cases)
        for case in study.everything(tuned_alike(study.wanted()))
    )
    chosen = {(each.policy, each.parameters, each.methods): each for each in every}
    made = [policy_of(each) for each in chosen.values() if each.policy in registry.policy_names()]
    forms = [each for each in made if isinstance(each, Form)]
    for form in forms:
        form.build(LIMITS)
    for document in (each.document if isinstance(each, Form) else each for each in made):
        registry.validate_document(document)
        assert registry.used_parameters(document.policy, document.parameters) == document.parameters
    assert len(forms) == 4 + 2 + 7 + 5 + 4  # as published, parts of it, ablations of ours and the papers'


def test_studies_are_in_budget():
    larry_like = econoserve_cases.everything(tuned_alike(econoserve_cases.wanted()))
    assert len(larry_like) < 900
    tunings = tuned_alike(accelgen_cases.wanted())
    assert len(accelgen_cases.everything(tunings)) + 5 * len(accelgen_cases.searches(tunings)) < 1000
