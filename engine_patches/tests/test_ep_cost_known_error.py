"""What is known of the simulator's error: read, kept, and summed up for a model and GPU."""

import pytest

from headrace_engine.cost import known_error
from headrace_engine.cost.known_error import FIGURES, Comparison


def compared(*e2e, model="m", gpu="H100", engine="vLLM 0.15.1", source="s"):
    runs = {f"r{number}": {"ttft": 3 * error, "e2e": error} for number, error in enumerate(e2e)}
    return Comparison(model, gpu, 1, engine, source, runs)


def test_the_packaged_comparisons_can_be_read_and_say_where_they_are_from():
    found = known_error.load_comparisons()
    assert found
    for each in found:
        assert each.source
        assert each.runs
        for run in each.runs.values():
            assert set(run) <= set(FIGURES)


def test_who_writes_its_comparisons_leaves_those_of_others(tmp_path):
    path = tmp_path / "known.json"
    mine, yours = compared(1.0, source="mine"), compared(2.0, source="yours")
    known_error.save_comparisons([mine], path)
    known_error.save_comparisons([yours], path)
    known_error.save_comparisons([compared(5.0, source="mine")], path)
    assert known_error.load_comparisons(path) == [compared(5.0, source="mine"), yours]


def test_comparisons_are_found_by_model_and_gpus_without_regard_to_the_engine():
    everything = [compared(1, engine="a"), compared(2, engine="b"), compared(3, gpu="A100")]
    assert known_error.find_comparisons(everything, "M", "h100", 1) == everything[:2]
    assert known_error.find_comparisons(everything, "m", "h100", 2) == []


def test_median_and_worst_are_over_all_runs():
    found = [compared(-1, 2), compared(-30, engine="other")]
    assert known_error.median_error(found, "e2e") == 2
    assert known_error.worst_error(found, "e2e") == -30
    assert known_error.worst_error(found, "tpot") is None
    assert known_error.median_error([], "e2e") is None


@pytest.mark.parametrize(("error", "factor"), [(25, 1.25), (-50, 2), (-100, float("inf")), (0, 1)])
def test_too_fast_and_too_slow_count_alike(error, factor):
    assert known_error.off_by([compared(error)], "e2e") == pytest.approx(factor)


def test_few_runs_count_by_the_worst_and_many_by_what_covers_most():
    assert known_error.off_by([compared(*range(20))], "e2e") == pytest.approx(1.19)
    assert known_error.off_by([compared(*[1] * 39, 200)], "e2e") == pytest.approx(1.01)
    assert known_error.off_by([], "e2e") == 1


def test_what_was_never_compared_takes_the_error_of_the_worst_known():
    everything = [compared(5), compared(-50, gpu="A100"), compared(10, gpu="L4")]
    assert known_error.widest(everything, "e2e") == pytest.approx(2)
    assert known_error.widest([], "e2e") == 1
