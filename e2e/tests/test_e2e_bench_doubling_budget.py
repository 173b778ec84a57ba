"""The study of DoublingBudget: it runs all that its figures and its page ask for."""

import random
from dataclasses import replace

import pytest

from e2e.bench.doubling_budget import cases, figures, page
from e2e.bench.doubling_budget import study as doubling_budget
from e2e.bench.doubling_budget.figures import LATENCIES
from e2e.bench.runs import comparison


def any_figures(measured):
    """Any figures, the same for the same run."""
    return {
        case: {name: random.Random(f"{case} {name}").uniform(0.1, 1.0) for name in LATENCIES.values()}
        | {"preemptions": 3, "left_waiting": 0.0}
        for case in measured
    }


@pytest.fixture(scope="module")
def study():
    """A study of just the runs that it makes."""
    return doubling_budget.collect(any_figures)


def half_of_stock(study, figure, setting, load):
    """The study where DoublingBudget, on default engines, has half of stock's figure at one load."""
    found = dict(study.found)
    for stock, ours in zip(
        study.runs(setting, load, "stock"), study.runs(setting, load, "DoublingBudget"), strict=True
    ):
        found[ours] = found[ours] | {figure: float(found[stock][figure]) / 2}
    return replace(study, found=found)


def test_every_latency_is_compared_on_every_workload_default_tuned_and_with_a_feedback_queue(study):
    names = figures.figures(study)
    for setting in cases.SETTINGS:
        for load in setting.loads:
            for figure in LATENCIES.values():
                for end in ("", "_tuned", "_of_mlfq"):
                    assert f"{figure}_ratio_{setting.at(load)}{end}_low" in names


def test_a_ratio_is_of_the_policy_to_stock_and_the_worst_is_the_highest(study):
    setting, load = cases.LONG_TAILS, 0.9
    changed = half_of_stock(study, "e2e_mean", setting, load)
    made = figures.figures(changed)
    assert made[f"e2e_mean_ratio_{setting.at(load)}"] == 0.5
    ratios = [made[f"e2e_mean_ratio_{each.at(load)}"] for each in cases.SETTINGS for load in each.loads]
    assert made["e2e_mean_worst_ratio"] == max(ratios)
    assert made["grid_worst_e2e_mean"] == pytest.approx(
        max(figures.doubts(changed.found, "e2e_mean")), abs=1e-3
    )


def test_the_page_says_where_a_queue_only_grows(study, tmp_path):
    setting, load = cases.CONVERSATION, 1.0
    found = dict(study.found)
    for case in study.runs(setting, load, "stock"):
        found[case] = found[case] | {"left_waiting": 0.1}
    text = page.write(replace(study, found=found), tmp_path).read_text()
    [row] = [
        line
        for line in text.partition("## Against stock, both tuned")[0].splitlines()
        if line.startswith(f"| {setting.name}: {load:g}")
    ]
    assert row.rstrip(" |").endswith("yes")
    assert (tmp_path / "doubling_budget.svg").exists()


def test_forms_differ_from_one_another_and_from_stock():
    case = cases.LONG_TAILS.case(0.9, 0)
    made = [kind(case) for kind in (comparison.stock, *cases.forms().values())]
    assert len(set(made)) == len(made)
