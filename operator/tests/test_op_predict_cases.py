"""Lists of cases: what a row says, and what is answered to one that is wrong."""

import csv
import re

import pytest

from headrace_operator.predict import loads
from headrace_operator.predict.cases import COLUMNS, Case, Unpredictable, read_cases
from headrace_operator.simulate.usage_error import UsageError

ROW = {
    "id": "a",
    "cost_model": "llama-3-8b|H100-SXM-80G|tp1",
    "gpu": "H100",
    "tp": "1",
    "replicas": "1",
    "model": "Llama-3.1-8B-Instruct",
    "vllm": "0.15.1",
    "arrivals": "constant",
    "rate_rps": "4",
    "concurrency": "",
    "prompt_tokens": "100.5",
    "output_tokens": "64",
    "prefix": "off",
    "max_num_seqs": "128",
    "max_num_batched_tokens": "default",
    "kv_blocks_16": "",
    "note": "",
}


@pytest.fixture
def read(tmp_path):
    def read(*rows, columns=(*COLUMNS, "note", "duration_s")):
        path = tmp_path / "cases.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows([ROW | row for row in rows])
        return read_cases(path)

    return read


def test_a_row_says_model_engine_and_load(read):
    (case,) = read({"arrivals": "gamma, burstiness 50", "prefix": "100 prompts cycled (inferred)"})
    assert isinstance(case, Case)
    assert (case.cost.profile.model, case.vllm, case.max_num_seqs) == ("llama-3-8b", (0, 15), 128)
    assert (case.process, case.burstiness, case.rate) == ("gamma", 50.0, 4.0)
    assert (case.prefix_caching, case.cycle, case.max_num_batched_tokens) == (True, 100, None)


def test_without_the_name_of_a_cost_model_one_is_found_by_model_and_gpus(read):
    (case,) = read({"cost_model": "", "model": "meta-llama/Llama-3.1-70B-Instruct", "tp": "4"})
    assert (case.cost.profile.model, case.cost.profile.tensor_parallel) == ("llama-3-70b", 4)


def test_what_has_no_cost_model_is_not_predicted_and_says_why(read):
    missing, fine = read({"cost_model": "", "model": "gpt-5"}, {"id": "b"})
    assert isinstance(missing, Unpredictable)
    assert "no cost model for gpt-5 on 1 x H100; there are: " in missing.why
    assert isinstance(fine, Case)


def test_what_a_row_leaves_open_is_assumed_and_said(read):
    (case,) = read({"arrivals": "as recorded", "prefix": "unknown", "replicas": "2"})
    assert case.assumed == (
        "arrivals are Poisson",
        "no prompts begin alike",
        "each request goes to a replica by chance",
    )


def test_the_number_at_once_may_stand_in_the_note(read):
    (case,) = read({"arrivals": "all at once", "rate_rps": "inf", "note": "500 requests; of one length"})
    assert (case.process, case.concurrency) == ("at once", 500)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"rate_rps": "-1"}, "row 3, column rate_rps: '-1' is not a number above 0"),
        ({"rate_rps": "nan"}, "row 3, column rate_rps: 'nan' is not a number above 0"),
        ({"gpu": "H300"}, "row 3, column gpu: 'H300' is not one of A100, H100, H200"),
        (
            {"cost_model": "gpt-5|H100|tp1"},
            "row 3, column cost_model: no cost model for gpt-5 on 1 x H100; there are: codellama-34b",
        ),
        ({"cost_model": "gpt-5"}, "row 3, column cost_model: 'gpt-5' is not MODEL|GPU|tpN"),
        ({"cost_model": "", "model": ""}, "row 3, column model: '' is not the name of a model"),
        ({"arrivals": "bursty"}, "row 3, column arrivals: 'bursty' is not one of constant, poisson"),
        ({"prefix": "some"}, "row 3, column prefix: 'some' is not one of off, none shared"),
        ({"vllm": "new"}, "row 3, column vllm: 'new' is not a version of vLLM, such as 0.15.1"),
        ({"max_num_seqs": "many"}, "row 3, column max_num_seqs: 'many' is not a whole number from 1 on"),
        ({"arrivals": "closed"}, "row 3, column concurrency: '' is not a whole number from 1 on"),
        (
            {"arrivals": "closed", "concurrency": "4", "replicas": "2"},
            "row 3, column replicas: '2' is not 1, which it must be where arrivals are 'closed'",
        ),
        ({"id": "a"}, "row 3, column id: another row is called 'a' too"),
    ],
)
def test_a_bad_row_is_named_with_its_column_and_what_is_known(read, row, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        read({}, {"id": "b"} | row)


def test_a_missing_column_is_named(read):
    columns = [name for name in COLUMNS if name != "prefix"]
    with pytest.raises(UsageError, match=r"no column prefix; a list of cases has id, cost_model"):
        read({}, columns=columns)


def test_a_list_without_cases_is_refused(read):
    with pytest.raises(UsageError, match="no cases"):
        read()


def test_lengths_have_the_mean_that_is_asked_for(read):
    (case,) = read({"prompt_tokens": "100.25", "output_tokens": "3.5"})
    upcoming = loads.requests(case)
    made = [next(upcoming) for _ in range(400)]
    assert sum(each.prompt_tokens for each in made) == 40_100
    assert {each.output_tokens for each in made} == {3, 4}
    assert not any(each.prefix for each in made)


def test_prompts_that_come_in_turn_are_the_same(read):
    (case,) = read({"prefix": "10 prompts cycled"})
    upcoming = loads.requests(case)
    made = [next(upcoming) for _ in range(25)]
    assert [each.prefix for each in made[:10]] == [each.prefix for each in made[10:20]]
    assert [each.prompt_tokens for each in made[:10]] == [each.prompt_tokens for each in made[10:20]]
    assert len({each.prefix for each in made}) == 10


@pytest.mark.parametrize(
    ("arrivals", "variation"), [("constant", 0.0), ("poisson", 1.0), ("gamma, burstiness 25", 0.2)]
)
def test_gaps_have_the_rate_and_the_variation_of_their_process(read, arrivals, variation):
    (case,) = read({"arrivals": arrivals})
    upcoming = loads.gaps(case, 1)
    gaps = [next(upcoming) for _ in range(20_000)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(1 / 4, rel=0.03)
    assert deviation / mean == pytest.approx(variation, abs=0.03)
