"""Studies of one feature with and without, of made-up runs: ratios over seeds, the worst elsewhere, page."""

import pytest

from e2e.bench import rebalance, slices, slices_across_engines
from e2e.bench.runs.ablation import METRICS

pytestmark = pytest.mark.parametrize(
    "study", [slices.STUDY, rebalance.STUDY, slices_across_engines.STUDY], ids=lambda study: study.name
)


def made_up(study, **harmed):
    """Runs of which each takes half the time with the feature; `harmed`: by setting, the factor instead."""
    found = {}
    for setting in study.settings:
        for feature in (False, True):
            for case in study.seeds(setting, feature):
                factor = harmed.get(setting.key, 0.5) if feature else 1.0
                found[case] = dict.fromkeys((*METRICS, *study.counted), factor * (case.seed + 1))
    return found


def test_each_metric_is_compared_over_all_seeds(study):
    figures = study.figures(made_up(study), study.settings)
    assert figures["jct_mean_ratio_longtail_kv"] == pytest.approx(0.5)
    assert figures["wait_max_ratio_mooncake"] == pytest.approx(0.5)
    assert len(figures) == len(study.settings) * len(METRICS) + 1


def test_the_worst_elsewhere_is_of_workloads_that_the_feature_is_not_for(study):
    figures = study.figures(made_up(study, mooncake=1.25, longtail_kv=3.0), study.settings)
    assert figures["worst_ratio_elsewhere"] == pytest.approx(1.25)


def test_the_page_has_each_setting_with_the_feature_and_without(study):
    page = study.page(made_up(study), study.settings)
    rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("|")]
    for setting in study.settings:
        assert [row[1] for row in rows].count(setting.name) == 2


def test_no_two_settings_share_a_key_or_a_run(study):
    runs = [run for each in study.settings for feature in (False, True) for run in study.seeds(each, feature)]
    assert len(set(runs)) == len(runs)
    assert len({each.key for each in study.settings}) == len(study.settings)
