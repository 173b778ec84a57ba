"""The study of LARRY: it runs all that its figures and its page ask for."""

import random
from dataclasses import replace

import pytest

from e2e.bench.larry import cases as larry_cases
from e2e.bench.larry import figures as larry
from e2e.bench.larry import limits as larry_limits
from e2e.bench.larry import page as larry_page
from e2e.bench.larry import study as larry_study
from e2e.bench.report import plots
from e2e.bench.runs import comparison

FIGURES = (
    "ttft_mean",
    "ttft_p95",
    "ttft_p99",
    "e2e_mean",
    "e2e_p99",
    "normalized_mean",
    "tpot_p99",
    "wait_max",
    "met_e2e",
)


def any_figures(cases):
    """Any figures, the same for the same run."""
    return {
        case: {name: random.Random(f"{case} {name}").uniform(0.1, 1.0) for name in FIGURES}
        | {"preemptions": 3, "left_waiting": 0.0, "decisions": "alike"}
        for case in cases
    }


@pytest.fixture(scope="module")
def study():
    """A study of just the runs that it makes."""
    return larry_study.collect(any_figures)


def changed(study, figures_of):
    """The study with other figures of some runs; `figures_of` a case and what it had."""
    return replace(study, found={case: found | figures_of(case) for case, found in study.found.items()})


def test_figures_have_the_promised_names(study):
    names = larry.figures(study)
    for service in ("conv", "code"):
        assert {f"ttft_mean_ratio_{service}_{load}" for load in ("08", "09", "10")} <= names.keys()
        assert {f"wait_max_ratio_{service}_09", f"gain_kept_{service}_09"} <= names.keys()
    for setting in larry_cases.SETTINGS:
        for load in setting.all_loads():
            key = f"ttft_mean_ratio_{setting.at(load)}"
            assert {key, f"{key}_tuned", f"{key}_default_engine"} <= names.keys()
        for who in ("stock", "larry"):
            assert names[f"tuned_budget_{setting.key}_ttft_mean_{who}"] >= 256


def attained(study, shares):
    """The study with attainment by load; `shares`: stock's and LARRY's."""
    return changed(study, lambda case: {"met_e2e": shares[case.policy == "LARRY"](case.load)})


@pytest.mark.parametrize(
    ("stock", "ours", "bound"),
    [
        (lambda load: 1 - 0.4 * load, lambda load: 1 - 0.2 * load, 0),
        (lambda load: 1 - 0.4 * load, lambda load: 1.0, 1),
        (lambda load: 0.5, lambda load: 1 - 0.2 * load, 1),
        (lambda load: 1.0, lambda load: 1 - 0.4 * load, -1),
        (lambda load: 1 - 0.4 * load, lambda load: 0.5, -1),
        (lambda load: 1.0, lambda load: 1.0, None),
        (lambda load: 0.5, lambda load: 0.5, None),
    ],
)
def test_goodput_ratios_say_whether_they_are_bounds(study, stock, ours, bound):
    names = larry.figures(attained(study, (stock, ours)))
    for end in ("", "_tuned", "_default_engine"):
        name = f"goodput_ratio_code_e2e{end}"
        assert names.get(f"{name}_bound") == bound
        assert (name in names) == (bound is not None)


def test_a_load_whose_queue_only_grows_is_not_carried(study):
    held = attained(study, (lambda load: 1 - 0.4 * load, lambda _: 1.0))
    growing = changed(
        held, lambda case: {"left_waiting": 0.02 if case.policy == "LARRY" and case.load > 0.3 else 0.0}
    )
    loads = [point.load for point in growing.goodputs(larry_cases.CODE, "LARRY")]
    assert all(0.3 <= load < 0.35 for load in loads)
    assert growing.grows(larry_cases.CODE, 0.7, ["LARRY"])
    assert not growing.grows(larry_cases.CODE, 0.7, ["stock"])


def test_loads_in_names_are_told_apart():
    names = [setting.at(load) for setting in larry_cases.SETTINGS for load in setting.all_loads()]
    assert len({*names}) == len(names)
    assert {"code_07", "code_005", "code_02", "code_11", "conv_095", "conv_10"} <= {*names}


def test_low_loads_are_compared_with_the_same_effort(study):
    setting = larry_cases.SHAREGPT
    slow = set(study.runs(setting, 0.7, "tuned LARRY"))
    worse = changed(study, lambda case: {"ttft_mean": 1000.0} if case in slow else {})
    estimate, where = larry.worst_at_low_load(worse, "ttft_mean")
    assert estimate.value > 100
    assert where == f"{setting.name}, load 0.7, both tuned"


def test_what_is_judged_is_not_what_engines_were_tuned_on():
    asked = []

    def measured(cases):
        asked.append(cases)
        return any_figures(cases)

    found = larry_study.collect(measured)
    tuned_on = {case for cases in asked[:-1] for case in cases}
    assert {case.seed for case in tuned_on} == {-1}
    assert not any(case.seed < 0 for case in found.found)


def test_what_misses_its_aim_is_named(study):
    def missed(text):
        return text.rpartition("Missed: ")[2]

    fast = changed(study, lambda case: {"ttft_mean": 0.1 if case.policy == "LARRY" else 1.0})
    assert "mean TTFT / default" not in missed(larry_limits.aims(fast))
    slow = set(study.runs(larry_cases.CODE, 0.1, "LARRY"))
    slower = changed(fast, lambda case: {"ttft_mean": 0.75} if case in slow else {})
    assert missed(larry_limits.aims(slower)).count("mean TTFT / default") == 1
    assert "load 0.1" in missed(larry_limits.aims(slower))


def test_the_page_says_that_it_is_simulated_and_where_larry_does_not_help(study, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "SUFFIXES", (".svg",))
    page = larry_page.write(study, tmp_path).read_text()
    assert "Simulated" in page
    assert "Where LARRY does not help" in page
    assert "never held against a run on A100" in page
    assert "without ageing" in page
    assert "SRPT" in page
    assert "(one seed)" in page
    assert comparison.size(larry_cases.CODE) in page
    for picture in ("larry", "larry_goodput"):
        assert f"({picture}.svg)" in page
        assert (tmp_path / f"{picture}.svg").exists()
