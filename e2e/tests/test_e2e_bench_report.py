"""Intervals over seeds, tables, result pages and pictures."""

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.bench.report import intervals, markdown, plots
from e2e.bench.report.intervals import Estimate
from e2e.bench.report.plots import Curve


def test_a_ratio_is_paired_by_seed():
    assert intervals.ratio([1.0, 10.0], [2.0, 20.0]) == Estimate(0.5, 0.5, 0.5)
    found = intervals.ratio([1.0, 2.0, 4.0], [1.0, 1.0, 1.0])
    assert found.value == pytest.approx(2)
    half = 4.303 * math.log(2) / math.sqrt(3)  # t for two degrees of freedom
    assert found.low == pytest.approx(2 * math.exp(-half))
    assert found.high == pytest.approx(2 * math.exp(half))


def test_one_seed_gives_no_interval():
    found = intervals.ratio([3.0], [2.0])
    assert found == Estimate(1.5, 1.5, 1.5)
    assert str(found) == "1.50 (one seed)"
    assert intervals.ratio([3.0, 4.0], [2.0, 2.0]).seeds == 2


def test_figures_hold_the_interval_or_that_there_is_none():
    several = intervals.ratio([1.0, 2.0, 4.0], [1.0, 1.0, 1.0])
    assert intervals.keyed("x", several) == {"x": several.value, "x_low": several.low, "x_high": several.high}
    assert intervals.keyed("x", intervals.ratio([3.0], [2.0])) == {"x": 1.5, "x_seeds": 1}
    assert intervals.keyed("x", Estimate(2.0, 2.0, 2.0)) == {"x": 2.0}


def test_better_or_worse_needs_an_interval_on_one_side_of_1():
    assert intervals.compare_with_one(Estimate(0.5, 0.4, 0.9)) == "better"
    assert intervals.compare_with_one(Estimate(0.5, 0.4, 0.9), lower_is_better=False) == "worse"
    assert intervals.compare_with_one(Estimate(1.5, 1.1, 1.9)) == "worse"
    assert intervals.compare_with_one(Estimate(0.9, 0.4, 1.9)) == "not distinguishable"
    assert intervals.compare_with_one(intervals.ratio([1.0], [2.0])) == "one seed"


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [-1.0])])
def test_what_has_no_ratio(ours, theirs):
    with pytest.raises(ValueError, match="above zero"):
        intervals.ratio(ours, theirs)


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=30))
def test_an_interval_holds_its_value(values):
    found = intervals.mean(values)
    assert found.low <= found.value <= found.high


def test_a_win_must_hold_everywhere():
    assert intervals.wins_everywhere([0.5, 0.99])
    assert not intervals.wins_everywhere([0.5, 1.0])
    assert intervals.wins_everywhere([1.5, 1.01], lower_is_better=False)
    assert not intervals.wins_everywhere([])


def test_tables_are_aligned_and_rounded():
    rows = [
        ["stock", 0.123456, None],
        ["LARRY", 12345.6, Estimate(0.5, 0.4, 0.6)],
        ["n", 3, Estimate(2, 2, 2)],
    ]
    assert markdown.table(["policy", "seconds", "ratio"], rows).splitlines() == [
        "| policy | seconds |               ratio |",
        "|:-------|--------:|--------------------:|",
        "| stock  |   0.123 |                   - |",
        "| LARRY  |  12,346 | 0.50 (0.40 to 0.60) |",
        "| n      |       3 |                2.00 |",
    ]
    with pytest.raises(ValueError, match="2 cells"):
        markdown.table(["a", "b"], [["c"]])


def test_a_page_says_that_it_is_simulated_and_how_wrong_that_may_be(tmp_path, monkeypatch):
    figures = {
        f"pro6000_8b_{key}_error_percent": value for key, value in (("ttft", -1), ("tpot", 2), ("e2e", 3))
    }
    (tmp_path / "validation.json").write_text(json.dumps({"figures": figures}))
    assert "not known here" in markdown.known_error(tmp_path)
    chosen = {"e2e_error_median_percent": 2.5, "several_gpus_tpot_error_median_percent": 1.5}
    (tmp_path / "gpu_runs.json").write_text(json.dumps({"figures": chosen}))
    assert "TTFT is off by -1.0 %" in markdown.known_error(tmp_path)
    assert "by 2.5 % (median of 14 runs)" in markdown.known_error(tmp_path)
    path = markdown.page(
        "x", "Title", " part ", markdown.picture(tmp_path / "a.svg", "Seen"), folder=tmp_path
    )
    lines = path.read_text().splitlines()
    assert lines[0] == "# Title"
    assert lines[2].startswith("Simulated: no GPU ran.")
    assert lines[4:] == ["part", "", "![Seen](a.svg)", "", "*Seen*"]


def draw(folder):
    curve = Curve([0.1, 0.5, 1.1], [1.0, 0.95, 0.3], [0.9, 0.9, 0.2], [1.0, 1.0, 0.4])
    panels = {"code": {"stock": curve, "LARRY": curve, "other": curve}, "conversation": {"SRPT": curve}}
    ratios = {"0.9": {"Random": Estimate(0.5, 0.4, 0.7), "RoundRobin": Estimate(1.1, 1.1, 1.1)}}
    points = {"code": {"ageing": [(2.0, 1.0, "0"), (1.4, 0.9, "10")]}}
    return [
        plots.curves(
            folder / "curves", "Found", "Simulated", panels, x_label="load", y_label="met",
            level=(0.9, "90 %"), percent=True,
        ),
        plots.ratios(folder / "ratios", "Found", "Simulated", ratios, x_label="TTFT"),
        plots.trade_off(
            folder / "trade", "Found", "Simulated", points, x_label="wait", y_label="gain", chosen="10",
            box=(1.5, 0.9),
        ),
    ]  # fmt: skip


def test_the_same_figures_give_the_same_pictures(tmp_path):
    first, second = draw(tmp_path / "a"), draw(tmp_path / "b")
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert one.with_suffix(".png").stat().st_size > 5000
        assert b"<dc:date>" not in one.read_bytes()


def test_names_at_lines_ends_keep_apart():
    moved = plots._apart([0.5, 0.5, 0.51, 0.9])
    assert all(after - before >= plots.LABEL_HEIGHT - 1e-6 for before, after in itertools.pairwise(moved))
    assert moved[3] == 0.9
    assert plots._apart([]) == []


def test_a_name_keeps_its_colour():
    colours = plots._colours(["LARRY", "one", "two", "stock"])
    assert colours["LARRY"] == plots.FIXED["LARRY"]
    assert len(set(colours.values())) == 4
    assert plots._colours(["two", "LARRY"])["LARRY"] == colours["LARRY"]
