"""The study of LARRY: it runs all that its figures and its page ask for."""

import random

import pytest

from e2e.bench.larry import cases as larry_cases
from e2e.bench.larry import figures as larry
from e2e.bench.larry import limits as larry_limits
from e2e.bench.larry import page as larry_page
from e2e.bench.report import plots

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
    "met_ttft",
    "met_tpot",
)


@pytest.fixture(scope="module")
def found():
    """Any figures, the same for the same run, of just the runs that the study makes."""
    return {
        case: {name: random.Random(f"{case} {name}").uniform(0.1, 1.0) for name in FIGURES}
        | {"preemptions": 3}
        for case in larry_cases.everything()
    }


def test_figures_have_the_promised_names(found):
    names = larry.figures(found)
    for service in ("conv", "code"):
        assert {f"ttft_mean_ratio_{service}_{load}" for load in ("08", "09", "10")} <= names.keys()
        assert {f"wait_max_ratio_{service}_09", f"gain_kept_{service}_09"} <= names.keys()
    for service in ("conv", "code", "codepoisson"):
        setting = next(each for each in larry_cases.SETTINGS if each.key == service)
        for load in setting.all_loads():
            key = f"wait_max_ratio_{setting.at(load)}_1024"
            assert {key, f"{key}_of_stock_1024"} <= names.keys()


def attained(found, shares):
    """The runs with attainment of all targets by load; `shares`: stock's and LARRY's."""
    return {
        case: figures
        | {name: shares[case.policy == "LARRY"](case.load) for name in figures if "met_" in name}
        for case, figures in found.items()
    }


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
def test_goodput_ratios_say_whether_they_are_bounds(found, stock, ours, bound):
    names = larry.figures(attained(found, (stock, ours)))
    for target in ("ttft", "e2e", "tpot"):
        for end in ("", "_tuned"):
            name = f"goodput_ratio_code_{target}{end}"
            assert names.get(f"{name}_bound") == bound
            assert (name in names) == (bound is not None)


def test_loads_in_names_are_told_apart():
    names = [setting.at(load) for setting in larry_cases.SETTINGS for load in setting.all_loads()]
    assert len({*names}) == len(names)
    assert {"code_07", "code_005", "code_02", "code_11", "conv_095", "conv_10"} <= {*names}


def test_low_loads_are_compared_with_the_same_watermark(found):
    for setting in larry_cases.SHORT_OF_KV:
        worse = dict(found)
        for case in larry.runs_of(setting, 0.7, "LARRY, 5 % watermark"):
            worse[case] = worse[case] | {"ttft_mean": 1000.0}
        estimate, where = larry.worst_at_low_load(worse, "ttft_mean")
        assert estimate.value > 100
        assert where == f"{setting.name}, load 0.7, 5 % watermark"


def test_tuned_stock_is_the_best_of_its_settings(found):
    for figure in ("ttft_mean", "wait_max"):
        default = larry.values(found, larry.runs_of(larry_cases.CODE, 0.7), figure)
        tuned = larry.values(found, larry.best_stock(found, larry_cases.CODE, 0.7, figure), figure)
        assert sum(tuned) <= sum(default)
    loads = [
        sum(point.load for point in points)
        for points in (
            larry.tuned_goodput(found, larry_cases.CODE, "e2e"),
            larry.goodput_of(found, larry_cases.CODE, "e2e", "stock"),
        )
    ]
    assert loads[0] >= loads[1]


def test_where_kv_is_short_stock_is_tuned_by_its_watermark(found):
    stock = larry.runs_of(larry_cases.SHAREGPT, 1.0)
    with_room = larry.runs_of(larry_cases.SHAREGPT, 1.0, "stock, 5 % watermark")
    for better in (stock, with_room):
        changed = found | {case: found[case] | {"ttft_mean": 0.001} for case in better}
        assert larry.best_stock(changed, larry_cases.SHAREGPT, 1.0, "ttft_mean") == better


def test_what_misses_its_aim_is_named(found):
    def missed(text):
        return text.rpartition("Missed: ")[2]

    cases = {
        case: figures | {"ttft_mean": 0.1 if case.policy == "LARRY" else 1.0}
        for case, figures in found.items()
    }
    assert "mean TTFT / default" not in missed(larry_limits.aims(cases))
    slow = larry.runs_of(larry_cases.CODE, 0.1, "LARRY")
    cases |= {case: cases[case] | {"ttft_mean": 0.75} for case in slow}
    assert missed(larry_limits.aims(cases)).count("mean TTFT / default") == 1
    assert "load 0.1, 8,192 tokens a step" in missed(larry_limits.aims(cases))


def test_the_page_says_that_it_is_simulated_and_where_larry_does_not_help(found, tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "SUFFIXES", (".svg",))
    page = larry_page.write(found, tmp_path).read_text()
    assert "Simulated" in page
    assert "Where LARRY does not help" in page
    assert "not validated against a run on such a GPU" in page
    assert "without ageing" in page
    assert "SRPT" in page
    assert "(one seed)" in page
    assert "three seeds" not in page
    for picture in ("larry", "larry_goodput"):
        assert f"({picture}.svg)" in page
        assert (tmp_path / f"{picture}.svg").exists()
