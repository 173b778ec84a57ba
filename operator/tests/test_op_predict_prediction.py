"""Predictions of described loads with vLLM's own scheduler, and the file that they are written to."""

import csv
from dataclasses import replace

import pytest
from test_op_predict_cases import ROW

from headrace_engine.cost import catalog
from headrace_engine.cost.host import NO_HOST_TIME
from headrace_engine.cost.model import Batch
from headrace_operator.predict.cases import COLUMNS, read_cases
from headrace_operator.simulate import command

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch, which vLLM imports
]


def write(path, *rows, columns=COLUMNS):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows([ROW | row for row in rows])
    return path


@pytest.fixture
def case(tmp_path):
    (case,) = read_cases(write(tmp_path / "one.csv", {"rate_rps": "1", "prompt_tokens": "100"}))
    return case


def test_a_request_alone_takes_what_its_steps_take(case):
    from headrace_operator.predict.prediction import predict

    found = predict(replace(case, vllm=(0, 11)), NO_HOST_TIME)
    cost = catalog.find_cost_model("llama-3-8b", "H100")
    assert found.ttft_mean_ms == pytest.approx(1000 * cost.step_seconds(Batch(100, 5050.0, prefills=1)))
    step = 1000 * cost.step_seconds(Batch(decodes=1, decode_context=132))
    assert found.tpot_mean_ms == pytest.approx(step, rel=1e-3)
    assert found.completed_rps == pytest.approx(1.0, rel=0.01)


def test_prompts_that_come_in_turn_are_cached_once_all_were_seen(case):
    from headrace_operator.predict.prediction import predict

    long = replace(case, prompt_tokens=2000.0)
    fresh = predict(replace(long, prefix_caching=True))
    cached = predict(replace(long, prefix_caching=True, cycle=50))
    assert cached.ttft_mean_ms < fresh.ttft_mean_ms - 20


def test_a_closed_loop_keeps_its_requests_in_flight(case):
    from headrace_operator.predict.prediction import predict

    found = predict(replace(case, process="closed", rate=0.0, concurrency=32, max_num_seqs=16))
    assert found.completed_rps * found.e2e_mean_ms / 1000 == pytest.approx(32, rel=0.05)  # Little's law


def test_replicas_share_the_load(case):
    from headrace_operator.predict.prediction import predict

    alone, two = predict(replace(case, rate=60.0)), predict(replace(case, rate=60.0, replicas=2))
    assert two.tpot_mean_ms < alone.tpot_mean_ms


def test_the_command_writes_every_case_and_why_one_is_missing(tmp_path, capsys):
    cases = write(tmp_path / "cases.csv", {}, {"id": "b", "cost_model": "", "model": "gpt-5"})
    assert command.main(["predict", str(cases), str(tmp_path / "out.csv")]) == 0
    first, second = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert float(first["e2e_mean_ms"]) > 63 * float(first["tpot_mean_ms"]) > 63 * 6
    assert (first["why"], second["e2e_mean_ms"]) == ("", "")
    assert second["why"].startswith("no cost model for gpt-5")


@pytest.mark.parametrize("out", ["out.csv", "missing/out.csv"])
def test_nothing_is_written_where_something_is_wrong(tmp_path, capsys, out):
    cases = write(tmp_path / "cases.csv", {}, {"id": "b", "rate_rps": "-1" if out == "out.csv" else "1"})
    assert command.main(["predict", str(cases), str(tmp_path / out)]) == 2
    assert capsys.readouterr().err.startswith("headrace predict: ")
    assert list(tmp_path.iterdir()) == [cases]
