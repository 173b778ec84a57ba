"""The study of slices: ratios over seeds, the worst elsewhere, and the page, from made-up runs."""

import pytest

from e2e.bench import slices

SETTINGS = (*slices.LONG_TAILS, *slices.ELSEWHERE)


def made_up(**harmed):
    """Runs of which each takes half the time with slices; `harmed`: by setting, the factor instead."""
    found = {}
    for setting in SETTINGS:
        for tokens in (0, slices.SLICE):
            for case in slices.seeds(setting, tokens):
                factor = harmed.get(setting.key, 0.5) if tokens else 1.0
                found[case] = dict.fromkeys((*slices.METRICS, "preemptions"), factor * (case.seed + 1))
    return found


def test_each_metric_is_compared_over_all_seeds():
    figures = slices.figures(made_up(), SETTINGS)
    assert figures["jct_mean_ratio_longtail_kv"] == pytest.approx(0.5)
    assert figures["wait_max_ratio_mooncake"] == pytest.approx(0.5)
    assert len(figures) == len(SETTINGS) * len(slices.METRICS) + 1


def test_the_worst_elsewhere_is_of_workloads_that_slices_are_not_for():
    figures = slices.figures(made_up(mooncake=1.25, longtail_kv=3.0), SETTINGS)
    assert figures["worst_ratio_elsewhere"] == pytest.approx(1.25)


def test_the_page_has_each_setting_with_slices_and_without():
    page = slices.page(made_up(), SETTINGS)
    for setting in SETTINGS:
        assert sum(setting.name in line for line in page.splitlines()) >= 2


def test_no_two_settings_share_a_key_or_a_case():
    assert len({each.key for each in SETTINGS}) == len({each.case for each in SETTINGS}) == len(SETTINGS)
