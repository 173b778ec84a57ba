"""The study of shared beginnings: what it runs, and its figures and page of made-up numbers."""

import json

from e2e.bench import prefix_policies
from e2e.bench.prefix_policies import POLICIES
from e2e.bench.report import plots
from e2e.bench.runs import workloads
from e2e.bench.runs.command_line import Options

SLOW = {"stock": 1.0, "FCFS": 1.0, "LARRY": 0.9, "AccelGen": 1.02, "EconoServe": 1.5, "DoublingBudget": 1.1}


def made_up(wanted, *_):
    return {
        case: {
            **dict.fromkeys(
                ("ttft_mean", "tpot_mean", "e2e_mean"), SLOW[case.policy] * (1 + case.seed) * case.load
            ),
            "wait_max": 0.0,
            "cached_share": 0.5,
        }
        for case in wanted
    }


def test_page_and_figures(tmp_path, monkeypatch):
    shown = {}
    monkeypatch.setattr(prefix_policies, "measure", made_up)
    monkeypatch.setattr(plots, "ratios", lambda *details, **_: shown.update(details[3]))
    prefix_policies.run(Options(folder=tmp_path))
    figures = json.loads((tmp_path / "prefix_policies.json").read_text())["figures"]
    assert figures["ttft_ratio_worst"] == figures["ttft_ratio_econoserve_16384_09"] == 1.5
    assert figures["ttft_ratio_larry_0_05"] == 0.9
    assert figures["wait_max_ratio_worst"] == 1.0
    assert (
        len([name for name in figures if name.startswith("ttft_ratio_accelgen") and name.endswith("_low")])
        == 8
    )
    assert len(shown) == 8
    assert all(list(each) == list(POLICIES) for each in shown.values())
    page = (tmp_path / "prefix_policies.md").read_text()
    assert page.count("alike, load") == 8 * 6


def test_all_prompts_begin_alike_and_go_on_as_recorded():
    plain, long = (workloads.make(f"beginning-{tokens}", 50, 5.0, 0, 131_072) for tokens in (0, 4096))
    assert [each.prompt_tokens - 4096 for each in long] == [each.prompt_tokens for each in plain]
    assert [each.at for each in long] == [each.at for each in plain]
    assert {each.prefix for each in long} == {tuple(range(256))}
    assert {each.prefix_block for each in long} == {16}
    assert not any(each.prefix for each in plain)
