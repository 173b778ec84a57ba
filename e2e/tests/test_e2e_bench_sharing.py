"""The study of sharing: ratios of FairShare to each other way, from made-up runs."""

import pytest

from e2e.bench.sharing import cases, study
from headrace_engine.sim.workloads.arrival import Arrival


def made_up(**slower):
    """Runs that take as long in each way; `slower`: by way, how many times as long."""
    return study.Study(
        {
            case: dict.fromkeys(study.METRICS, slower.get(case.way, 1.0) * (case.seed + 1))
            for case in cases.everything()
        }
    )


def test_each_way_is_compared_at_each_rate():
    figures = study.figures(made_up(dedicated=4.0, in_rotation=2.0))
    for group in cases.GROUPS:
        for rate in group.rates:
            assert figures[f"norm_latency_ratio_dedicated_{group.key}_{rate:g}"] == pytest.approx(0.25)
        assert figures[f"ttft_mean_ratio_in_rotation_{group.key}_high"] == pytest.approx(0.5)
    assert figures["norm_latency_ratio_dedicated_high"] == pytest.approx(0.25)
    assert figures["worst_ratio_turns"] == pytest.approx(1.0)


def test_the_worst_of_all_is_named_by_what_it_is_compared_with():
    figures = study.figures(made_up(dedicated=0.5, switched=0.8))
    assert figures["worst_ratio_any"] == figures["worst_ratio_dedicated"] == pytest.approx(2.0)
    assert figures["worst_ratio_turns"] == pytest.approx(1.0)


def test_the_page_has_every_way_of_every_group():
    page = study.page(made_up())
    for group in cases.GROUPS:
        assert group.name[1:] in page
    rows = sum(len(group.rates) for group in cases.GROUPS)
    assert all(page.count(study.NAMES[way]) == rows for way in cases.WAYS)


def test_services_of_a_group_are_asked_in_the_same_time_and_by_their_shares(monkeypatch):
    asked, one = [], Arrival(at=0.0, prompt_tokens=1, output_tokens=1)

    def make(_name, count, rate, seed, _longest):
        asked.append((count, rate, seed))
        return [one] * count

    monkeypatch.setattr(cases.workloads, "make", make)
    monkeypatch.setattr(cases.shape, "keep_fitting", lambda *_: [one])
    case = cases.SharingCase(cases.GROUPS[0], "FairShare", 10, seed=3)
    loads = [cases.requests_of(case, place) for place in range(2)]
    assert [len(load) for load in loads] == [960, 240]
    assert asked == [(960, 8.0, 6), (240, 2.0, 7)]
