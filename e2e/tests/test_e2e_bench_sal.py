"""The fleet studies' pages and figures, of made-up numbers: pairs, intervals, what is said of one seed."""

import json
from dataclasses import replace

import pytest

from e2e.bench import prefix
from e2e.bench.report import plots
from e2e.bench.report.intervals import ratio
from e2e.bench.rivals import RIVALS
from e2e.bench.runs.command_line import Options
from e2e.bench.sal import cases as sal_cases
from e2e.bench.sal import page as sal_page
from e2e.bench.sal import study as sal_study
from e2e.bench.sal.cases import NAMES, ONE, OTHERS, SEEDS, Setting, base
from headrace_gateway.balancers.endpoint import STALE_SECONDS

SECTIONS = sal_cases.settings(quick=False)
VARIANTS = sal_cases.variants(quick=False)
GRID = sal_cases.grid(quick=False)


FAST = {"sal": 1.0, "llm_d": 1.2}


def made_up(cases, *_):
    """SAL a third faster but than RoundRobin, which is as fast but for noise, and than llm-d."""
    found = {}
    for case in cases:
        noise = {"round_robin": 1.02 if case.seed % 2 else 0.99}
        fast = (FAST | noise).get(case.balancer, 1.5)
        value = 0.1234567 * fast * (1 + case.seed) * case.mixed
        found[case] = {
            "ttft_mean": value,
            "ttft_p95": 2 * value,
            "e2e_mean": 9 * value,
            "lost": 3,
            "cached_share": 0.25,
        }
    return found


@pytest.fixture
def options(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "ratios", lambda *_args, **_options: None)
    monkeypatch.setattr(sal_study, "measure", made_up)
    monkeypatch.setattr(prefix, "measure", made_up)
    return Options(folder=tmp_path)


def test_every_required_figure_has_three_seeds_and_every_balancer_is_there():
    for section in ("even", "slow"):
        rows = {(row.case.workload, row.case.load): row for row in SECTIONS[section]}
        for load in (0.7, 0.9):
            assert rows["conversation", load].case.engines == 16
            for workload in ("conversation", "code-poisson"):
                assert tuple(rows[workload, load].others) == OTHERS
                assert rows[workload, load].seeds == SEEDS
    for workload in ("mooncake", "chats"):
        (row,) = (row for row in SECTIONS["prefixes"] if row.case.workload == workload)
        assert (tuple(row.others), row.seeds) == (OTHERS, SEEDS)
    assert set(RIVALS) < set(OTHERS) < set(NAMES)
    assert len(SEEDS) >= 3
    assert len(prefix.SEEDS["mooncake", 0.9]) >= 3


def test_late_reports_are_not_dropped_as_stale():
    rows = SECTIONS["stale"]
    assert max(row.case.report_interval for row in rows) < STALE_SECONDS
    assert all("llm_d" in row.others for row in rows)


def test_large_fleets_and_the_grid():
    (large,) = (row for row in SECTIONS["sizes"] if row.case.engines == 64)
    assert large.case.requests >= 300
    for workload in ("conversation", "code-poisson"):
        points = {
            (p.case.mixed, p.case.overhead_ms, p.case.host) for p in GRID if p.case.workload == workload
        }
        assert len(points) == 13
    assert {p.case.engines for p in GRID} == {16}


def test_ratios_are_of_the_same_seeds():
    row = Setting(base("conversation", 0.9), OTHERS, SEEDS)
    found = made_up(row.cases())
    assert row.ratio(found, "random").seeds == 3
    assert row.ratio(found, "random").value == pytest.approx(1 / 1.5)
    alone = Setting(row.case, OTHERS, ONE)
    assert alone.ratio(found, "random").seeds == 1
    assert alone.ratio(found, "random").value == pytest.approx(1 / 1.5)


def test_variants_are_compared_on_the_same_requests():
    for variant in VARIANTS.values():
        plain = sal_cases.unchanged(variant)
        assert plain.case.bookkeeping
        assert plain.case.release == "Net"
        assert plain.seeds == variant.seeds
    found = made_up(sal_cases.all_cases({}, VARIANTS, []))
    assert sal_page.variant_table(VARIANTS, found).count("1.00 (one seed)") == 2 * len(VARIANTS)


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([1.0, 1.1, 1.0], [2.0, 2.1, 2.1], ""),
        ([1.0, 1.0, 1.0], [0.9, 1.3, 1.0], "not distinguishable"),
        ([2.0, 2.1, 2.1], [1.0, 1.1, 1.0], "SAL is behind"),
        ([1.0], [2.0], ""),
        ([2.0], [1.0], "not distinguishable"),
    ],
)
def test_what_a_ratio_shows(ours, theirs, said):
    assert sal_page.doubt(ratio(ours, theirs)) == said


def test_page_and_figures(options):
    sal_study.run(options)
    page = (options.folder / "sal.md").read_text()
    figures = json.loads((options.folder / "sal.json").read_text())["figures"]
    for other in OTHERS:
        for key in (
            f"ttft_mean_ratio_{other}_{load}{slow}" for load in ("07", "09") for slow in ("", "_slow")
        ):
            assert 0.5 < figures[key] < 1.1
    assert all(value == float(f"{value:.4g}") for value in figures.values())
    assert figures["grid_worst_ttft_mean_ratio_llm_d_09"] == pytest.approx(1 / 1.2, abs=1e-3)
    assert "conversation, load 0.9: RoundRobin, mean TTFT 1.00 (" in page
    assert ": not distinguishable" in page
    assert "conversation against llm-d, mean TTFT: 13 of 13" in page
    assert "conversation against LeastRequest, mean TTFT: 13 of 13" in page
    assert "(one seed)" in page
    assert "no ratio above counts them" in " ".join(page.split())


def test_the_best_rival_is_the_fastest_of_those_that_others_run(options):
    row = Setting(base("chats", 0.9), OTHERS, SEEDS)
    assert row.best_rival(made_up(row.cases())) == "llm_d"
    sal_study.run(options)
    figures = json.loads((options.folder / "sal.json").read_text())["figures"]
    places = ("conversation", "code_poisson", "code", "mooncake", "chats", "conversation_slow")
    for place in (*places, "conversation_4_engines", "conversation_64_engines"):
        assert figures[f"best_rival_{place}"] == pytest.approx(1 / 1.2, abs=1e-3)
        assert figures[f"best_rival_e2e_{place}"] == pytest.approx(1 / 1.2, abs=1e-3)
    assert figures["best_rival_chats_low"] <= figures["best_rival_chats"] <= figures["best_rival_chats_high"]


def test_the_quick_version(options):
    sal_study.run(replace(options, quick=True))
    prefix.run(replace(options, quick=True))
    assert "conversation, load 0.9, 2 engines" in (options.folder / "sal.md").read_text()
    assert "chats, 0.9" in (options.folder / "prefix.md").read_text()


def test_prefix_page_and_figures(options):
    prefix.run(options)
    page = " ".join((options.folder / "prefix.md").read_text().split())
    figures = json.loads((options.folder / "prefix.json").read_text())["figures"]
    assert figures["ttft_mean_ratio_prefix_vs_plain_sal_mooncake_09"] == 1.0
    assert figures["hit_rate_plain_16"] == figures["hit_rate_prefix_16"] == 0.25
    assert "extrapolated" in page
    assert "exactly four bytes per token" in page
