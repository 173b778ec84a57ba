"""The study of LARRY: it runs all that its figures and its page ask for."""

import random

import pytest

from e2e.bench import larry, larry_page
from e2e.bench import larry_cases as runs

FIGURES = (
    "ttft_mean",
    "ttft_p95",
    "ttft_p99",
    "jct_mean",
    "jct_p99",
    "normalized_mean",
    "tbt_p99",
    "wait_max",
    "met_jct",
    "met_ttft",
)


@pytest.fixture(scope="module")
def found():
    """Any figures, the same for the same run, of just the runs that the study makes."""
    return {
        case: {name: random.Random(f"{case} {name}").uniform(0.1, 1.0) for name in FIGURES}
        | {"preemptions": 3}
        for case in runs.everything()
    }


def test_figures_have_the_promised_names(found):
    names = larry.figures(found)
    for service in ("conv", "code"):
        assert {f"ttft_mean_ratio_{service}_{load}" for load in ("08", "09", "10")} <= names.keys()
        assert {f"wait_max_ratio_{service}_09", f"gain_kept_{service}_09"} <= names.keys()
    for service in ("conv", "code", "codepoisson"):
        for target in ("ttft", "jct"):
            assert {f"goodput_ratio_{service}_{target}{end}" for end in ("", "_tuned")} <= names.keys()


def test_tuned_stock_is_the_best_of_its_settings(found):
    for figure in ("ttft_mean", "wait_max"):
        default = larry.values(found, larry.runs_of(runs.CODE, 0.7), figure)
        tuned = larry.values(found, larry.best_stock(found, runs.CODE, 0.7, figure), figure)
        assert sum(tuned) <= sum(default)
    loads = [
        sum(point.load for point in points)
        for points in (
            larry.tuned_goodput(found, runs.CODE, "jct"),
            larry.goodput_of(found, runs.CODE, "jct", "stock"),
        )
    ]
    assert loads[0] >= loads[1]


def test_the_page_says_that_it_is_simulated_and_where_larry_does_not_help(found, tmp_path):
    page = larry_page.write(found, tmp_path).read_text()
    assert "Simulated" in page
    assert "Where LARRY does not help" in page
    for picture in ("larry", "larry_goodput"):
        assert f"({picture}.svg)" in page
        assert (tmp_path / f"{picture}.svg").exists()
