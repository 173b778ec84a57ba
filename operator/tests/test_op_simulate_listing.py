"""What can be simulated is listed, with how far it was off."""

import io

import pytest
from rich.console import Console

from headrace_engine.cost import catalog
from headrace_engine.cost.known_error import Comparison
from headrace_operator.simulate import command, listing
from headrace_operator.simulate.listing import print_cost_models
from headrace_operator.simulate.table import WIDTH

RUNS = {
    "a": {"ttft": -20.0, "tpot": -4.0, "e2e": -5.0},
    "b": {"ttft": 10.0, "tpot": 2.0},
    "c": {"ttft": 1.0, "tpot": 3.0},
}


def listed(monkeypatch, *comparisons):
    monkeypatch.setattr(listing, "load_comparisons", lambda: list(comparisons))
    out = io.StringIO()
    print_cost_models(Console(file=out, width=WIDTH))
    assert "…" not in out.getvalue()
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_the_packaged_list_fits_its_width(monkeypatch):
    lines = listed(monkeypatch, *listing.load_comparisons())
    for profile in catalog.list_profiles():
        assert any(line.startswith(f"{profile.model} {profile.tensor_parallel} x") for line in lines)


def test_each_cost_model_says_how_far_it_was_off(monkeypatch):
    lines = listed(monkeypatch, Comparison("llama-3-8b", "H100", 1, "vLLM 0.15.1", "s", RUNS))
    assert "llama-3-8b 1 x H100 vLLM 0.24 3 10.0 (-20.0) 3.0 (-4.0) 5.0 (-5.0)" in lines
    assert "llama-3-8b 1 x A100 vLLM 0.14 - - - -" in lines


def test_runs_without_a_cost_model_are_listed_after_those_with_one(monkeypatch):
    lines = listed(monkeypatch, Comparison("qwen3-32b", "L4", 2, "vLLM 0.15.1", "s", {"a": {"ttft": 1.0}}))
    rows = [line for line in lines if " x " in line]
    assert rows[-1] == "qwen3-32b 2 x L4 its own tables 1 1.0 (+1.0) - -"


def test_the_list_needs_no_other_option(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["simulate", "--list-cost-models"])
    assert ended.value.code == 0
    assert "llama-3-70b" in capsys.readouterr().out
