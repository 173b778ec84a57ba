"""Figures of the runs that host time is calibrated on: their errors, and who is told of them."""

import pytest

from e2e.bench import gpu_runs
from headrace_operator.predict.prediction_file import FIGURES


@pytest.fixture
def errors():
    measured = dict.fromkeys(FIGURES, "100")
    each = {"a": 90.0, "b": 104.0, gpu_runs.AT_THE_EDGE: 50.0}
    return {
        name: gpu_runs.errors_of(dict.fromkeys(FIGURES, str(ours)), measured) for name, ours in each.items()
    }


def test_medians_are_of_sizes_and_the_worst_keeps_its_sign(errors):
    figures = gpu_runs.summarise(errors)
    assert figures["tpot_error_median_percent"] == 10.0
    assert figures["ttft_error_worst_percent"] == -50.0
    assert figures["completed_rps_error_worst_percent"] == 50.0


def test_the_run_at_the_edge_of_capacity_is_no_known_error(errors):
    told = gpu_runs.comparison(errors)
    assert told.runs == {
        "a": {"ttft": -10.0, "tpot": -10.0, "e2e": -10.0},
        "b": {"ttft": 4.0, "tpot": 4.0, "e2e": 4.0},
    }
    assert (told.model, told.gpu, told.tensor_parallel) == ("llama-3-8b", "H100", 1)


def test_runs_on_several_gpus_are_told_by_their_number_and_by_their_time_per_token():
    def pair(gpus, flight, ours):
        measured = {"tp": gpus, "prompt_tokens": "1024", "output_tokens": "128", "concurrency": flight}
        return {"tpot_mean_ms": ours}, measured | {"tpot_mean_ms": "10"}

    pairs = {"a": pair("2", "8", "11"), "b": pair("2", "16", "9.5"), "c": pair("4", "8", "8")}
    figures = gpu_runs.summarise_several(pairs)
    assert figures["several_gpus_tpot_error_median_percent"] == 10.0
    assert figures["several_gpus_tpot_error_worst_percent"] == -20.0
    two, four = gpu_runs.comparisons_of_several(pairs)
    assert (two.tensor_parallel, two.runs) == (2, {"a": {"tpot": 10.0}, "b": {"tpot": -5.0}})
    assert (four.tensor_parallel, four.runs) == (4, {"c": {"tpot": -20.0}})
    rows = gpu_runs.table_of_several(pairs).splitlines()
    assert [cell.strip() for cell in rows[2].strip("|").split("|")] == ["2", "1024", "128", "10", "-5"]
