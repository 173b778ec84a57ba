"""Engine settings are tuned on a sample of their own, for stock and for policies with the same effort."""

import itertools
from dataclasses import replace

import pytest

from e2e.bench.accelgen import cases as accelgen
from e2e.bench.doubling_budget import cases as doubling_budget
from e2e.bench.econoserve import cases as econoserve
from e2e.bench.larry import cases as larry
from e2e.bench.runs import comparison, search, tuning
from e2e.bench.runs.engine import ENGINES
from e2e.bench.runs.setting import TUNING_SEED
from e2e.bench.runs.tuning import BUDGETS, WATERMARKS, Tuning

CODE, KV = accelgen.CODE, econoserve.KV
SETTINGS = [*larry.SETTINGS, *econoserve.SETTINGS, *accelgen.SETTINGS, *doubling_budget.SETTINGS]


def tune(setting, aim, figures, asked=None):
    """The settings found when a run with a budget and a watermark has these figures."""

    def measured(cases):
        if asked is not None:
            asked.extend(cases)
        return {case: {"left_waiting": 0.0, **figures(case)} for case in cases}

    found, _ = search.run({"": tuning.tune(setting, comparison.stock, aim)}, measured)
    return found[""]


def test_budgets_go_up_by_the_square_root_of_two_in_whole_blocks():
    assert (BUDGETS[0], BUDGETS[-1], len(BUDGETS)) == (256, 16_384, 13)
    assert BUDGETS[::2] == tuple(256 * 2**step for step in range(7))
    for budget, after in itertools.pairwise(BUDGETS):
        assert after / budget == pytest.approx(2**0.5, rel=0.02)
        assert budget % 16 == 0
    assert min(BUDGETS) >= max(each.settings.max_num_seqs for each in ENGINES.values())


@pytest.mark.parametrize("best", BUDGETS)
@pytest.mark.parametrize("aim", ["ttft_mean", "met_ttft_tpot"])
def test_the_best_budget_is_found_from_coarse_to_fine(best, aim):
    asked = []

    def figures(case):
        off = max(case.budget / best, best / case.budget)
        return {"ttft_mean": off, "met_ttft_tpot": 1 - case.load * off}

    assert tune(CODE, aim, figures, asked) == Tuning(best)
    assert len({case.budget for case in asked}) <= 9
    assert {(case.seed, case.requests) for case in asked} == {(TUNING_SEED, CODE.tuned_on)}


def test_a_watermark_is_tuned_where_kv_is_short():
    def figures(case):
        return {"ttft_mean": abs(case.watermark - 0.05) + abs(case.budget - 1024) / 1024}

    assert tune(KV, "ttft_mean", figures) == Tuning(1024, 0.05)
    assert tune(CODE, "ttft_mean", figures) == Tuning(1024)
    assert 0.05 in WATERMARKS


def test_of_settings_that_are_alike_the_likely_one_without_a_watermark_stays():
    assert tune(KV, "ttft_mean", lambda _: {"ttft_mean": 1.0}) == Tuning(tuning.LIKELY)


def test_a_budget_with_which_the_queue_only_grows_does_not_win():
    def figures(case):
        return {"met_ttft_tpot": 1.0, "left_waiting": 0.1 if case.budget > 300 and case.load > 0.1 else 0.0}

    assert tune(CODE, "met_ttft_tpot", figures) == Tuning(256)


def test_policies_and_stock_are_tuned_alike():
    for study in (larry, econoserve, accelgen):
        wanted = study.wanted()
        aims = {(each.setting, each.aim) for each in wanted}
        assert len(wanted) == 2 * len(aims)
        assert {each.who for each in wanted if (each.setting, each.aim) in aims} >= {"stock"}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: f"{setting.key}-{setting.requests}")
def test_no_run_shares_a_recorded_request_with_another(setting):
    setting.refuse_overlap()


def test_seeds_beyond_the_trace_are_refused():
    with pytest.raises(ValueError, match=r"Azure code as recorded.*: 10300 requests are needed .* of 8819"):
        replace(CODE, seeds=tuple(range(6))).refuse_overlap()
    replace(CODE, workload="code-poisson", seeds=tuple(range(60))).refuse_overlap()


def test_what_was_found_is_named_and_told():
    found = {
        tuning.Wanted("code", "stock", "met_e2e"): Tuning(1456),
        tuning.Wanted("code", "larry", "met_e2e"): Tuning(724, 0.05),
    }
    assert tuning.figures(found) == {
        "tuned_budget_code_met_e2e_stock": 1456,
        "tuned_budget_code_met_e2e_larry": 724,
        "tuned_watermark_percent_code_met_e2e_larry": 5.0,
    }
    row = tuning.told(found, [CODE]).splitlines()[2]
    assert [cell.strip() for cell in row.split("|")][2:-1] == ["1,300", "1,456", "724 and 5%"]
